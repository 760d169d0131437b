"""`detrame attack`: trained networks under attack, side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer

from detrame.cli.arguments import AsJson, Device, names, numbers, once
from detrame.cli.show import print_checks, print_document, print_robustness, tell_begun, tell_measured

if TYPE_CHECKING:  # torch is imported where it is used, so that --help starts at once
    from detrame.experiments.networks import Network
    from detrame.experiments.robustness import Measured, Settings

Unit = Annotated[
    str | None,
    typer.Option(
        metavar="pixels|normalised", help="Unit of --radius and --noise: pixels in [0, 1], or what the network sees."
    ),
]


def attack(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Runs, folders of them, or networks of the package.")
    ],
    radius: Annotated[
        str | None, typer.Option(metavar="4/255,8/255,...", help="How far a perturbation may go.")
    ] = None,
    unit: Unit = None,
    norm: Annotated[str | None, typer.Option(metavar="inf|2", help="Norm of the radius. [default: inf]")] = None,
    attacks: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,...",
            help="One perturbation for all images: uap, uap-gradient, uap-sequential. "
            "One for each image: pgd, deepfool, square, autoattack. [default: uap,uap-gradient]",
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(metavar="0.001,0.01,...", help="Energy of Gaussian noise, relative to that of the image."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Also check, at the smallest radius, that no network hides its gradients.")
    ] = False,
    crafting: Annotated[int, typer.Option(help="Training images to craft universal perturbations on.")] = 1000,
    images: Annotated[int, typer.Option(help="Test images to measure on.")] = 1000,
    seeds: Annotated[str, typer.Option(metavar="0,1,...", help="One perturbation per seed.")] = "0",
    target: Annotated[float, typer.Option(help="Stop uap and uap-sequential at this percent fooled.")] = 80.0,
    overshoot: Annotated[float, typer.Option(help="Overshoot of DeepFool in uap and uap-sequential.")] = 0.02,
    passes: Annotated[int, typer.Option(help="Maximum number of passes over the crafting images.")] = 5,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Also write a page with pictures. For several radii it has curves, also saved as files beside it."
        ),
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Attack trained networks, and count the predictions that change.

    It also prints the accuracy that is left. On a CPU this takes minutes, and attacks on each image take longer: begin
    with few --images and --crafting.

    Examples:

        detrame attack plainnet9:relu plainnet9:qmetric --radius 3/255 --unit pixels

        detrame attack runs/NAME runs/OTHER --radius 0.05 --unit normalised --attacks uap-gradient --seeds 0,1,2

        detrame attack resnet8:relu resnet8:qmetric --radius 1/255 --unit pixels --attacks pgd,square --check

        detrame attack runs/NAME --noise 0.001,0.01 --unit pixels --out page.html
    """
    from detrame.experiments.networks import named, told_apart
    from detrame.experiments.robustness import Settings, page
    from detrame.training.files import ready_to_write

    asked = _Asked.by(radius, noise, unit, norm, attacks, check=check)
    settings = Settings(crafting, images, tuple(numbers("--seeds", seeds)), target, overshoot, passes)
    networks = told_apart([network for run in runs for network in named(run)])
    once("the command", [f"{one.label} on {one.recipe.dataset} from {one.source}" for one in networks])
    if out is not None:
        ready_to_write(out)
    measured: list[Measured] = []
    try:
        for one in asked.of(networks, settings, device, quiet=as_json):
            measured.append(one)
            if not as_json:
                tell_measured(one)
    finally:  # what is finished is kept, whatever cut the rest short
        if measured:
            left = asked.count(networks) - len(measured)
            _print(measured, images, left=left, as_json=as_json)
            if out is not None:
                page.write(measured, out, left=left)
    if out is not None and not as_json:
        print(out)


def _print(measured: "list[Measured]", images: int, *, left: int, as_json: bool) -> None:
    """What was measured, of which so much is left."""
    from detrame.experiments.robustness.stored import document
    from detrame.experiments.robustness.tables import rows, weakest_first

    if as_json:
        print_document({"measured": [document(one) for one in measured], "left": left})
        return
    print_robustness(weakest_first(rows(measured)))
    for dataset, count in {one.dataset: one.settings.images for one in measured}.items():
        if count < images:
            print(f"on {dataset}, measured on all {count} test images: there are no more")
    print_checks(measured)
    if left:
        print(f"cut short: {left} of {left + len(measured)} measurements are left")


@dataclass(frozen=True)
class _Asked:
    """What is asked of every network: attacks at some radii, noise, and whether gradients are hidden."""

    attacks: list[str]
    radii: list[float]
    ratios: list[float]
    unit: str
    norm: str
    check: bool

    @classmethod
    def by(
        cls,
        radius: str | None,
        noise: str | None,
        unit: str | None,
        norm: str | None,
        attacks: str | None,
        *,
        check: bool,
    ) -> Self:
        """From the options, if they make sense together."""
        from detrame.experiments.robustness.measure import known_attack
        from detrame.robustness import PER_IMAGE

        radii, ratios = values("--radius", radius), values("--noise", noise)
        if not radii and (check or attacks is not None):
            raise ValueError(
                f"{'--check' if check else '--attacks'} needs --radius, for example --radius 8/255 --unit pixels"
            )
        if not radii and not ratios:
            raise ValueError("how strong an attack? give --radius 8/255 --unit pixels, for example, or --noise 0.01")
        if not all(0 <= ratio < float("inf") for ratio in ratios):  # before attacks, which come first, take their time
            raise ValueError(f"--noise takes numbers >= 0, such as 0.01; got {noise}")
        if norm is not None and not radii:
            raise ValueError("--norm is that of --radius, and --noise has none: leave it out, or give --radius")
        if unit is None:
            raise ValueError(
                f"{'--radius' if radii else '--noise'} needs its unit: --unit pixels for pixels in [0, 1], "
                "or --unit normalised for what the network sees after normalising them"
            )
        chosen = names("--attacks", attacks) or ["uap", "uap-gradient"]
        if radii and unit != "pixels" and (check or not PER_IMAGE.keys().isdisjoint(chosen)):
            raise ValueError(f"--check and {', '.join(PER_IMAGE)} take a radius in pixels: give --unit pixels")
        for option, given in (("--radius", radii), ("--noise", ratios)):
            once(option, given)
        return cls([known_attack(name) for name in chosen] if radii else [], radii, ratios, unit, norm or "inf", check)

    def count(self, networks: "Sequence[Network]") -> int:
        """How many measurements it takes."""
        return len(networks) * (len(self.attacks) + bool(self.ratios))

    def of(
        self, networks: "Sequence[Network]", settings: "Settings", device: str, *, quiet: bool
    ) -> "Iterator[Measured]":
        """What comes of it, network by network; the checks, at the smallest radius, stand with the first attack.

        Before each it says on stderr, unless it is to be quiet, what may now take minutes.
        """
        from detrame.experiments.networks import twin
        from detrame.experiments.robustness import Subject

        def tell(name: str) -> None:
            if not quiet:
                tell_begun(network, name)

        for network in networks:
            data = network.dataset
            subject = Subject(network, settings.within(len(data.train), len(data.test)), device)
            balls = [network.ball(radius, self.unit, self.norm) for radius in self.radii]
            for name in self.attacks:
                tell(name)
                measured = subject.attack(name, balls)
                if self.check and name == self.attacks[0]:
                    smallest = min(balls, key=lambda ball: ball.radius)
                    measured = replace(measured, checks=subject.check(smallest, twin(network, networks)))
                yield measured
            if self.ratios:
                tell("noise")
                yield subject.noise(self.ratios, [self.unit])


def values(option: str, text: str | None) -> list[float]:
    """Numbers or fractions with commas between; none for None."""
    try:
        return [float(Fraction(part)) if "/" in part else float(part) for part in text.split(",")] if text else []
    except (ValueError, ZeroDivisionError):
        raise ValueError(
            f"{option} takes numbers or fractions separated by commas, such as 4/255,0.05; got {text!r}"
        ) from None
