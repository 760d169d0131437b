"""`detrame attack`: trained networks under attack, side by side."""

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated

import typer

from detrame.cli.arguments import AsJson, Device, numbers
from detrame.cli.show import print_document, print_robustness
from detrame.errors import unknown

if TYPE_CHECKING:  # torch is imported where it is used, so that --help starts at once
    from detrame.experiments.robustness import Measured, Network, Settings


def attack(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Runs, folders of them, or networks of the package.")
    ],
    radius: Annotated[
        str | None, typer.Option(metavar="4/255,8/255,...", help="How far a perturbation may go.")
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            metavar="pixels|normalised", help="Of --radius and --noise: pixels in [0, 1], or as the network sees them."
        ),
    ] = None,
    norm: Annotated[str, typer.Option(metavar="inf|2", help="Of the radius.")] = "inf",
    attacks: Annotated[
        str, typer.Option(metavar="NAME,NAME,...", help="uap, uap-gradient, uap-sequential.")
    ] = "uap,uap-gradient",
    noise: Annotated[
        str | None, typer.Option(metavar="0.001,0.01,...", help="Energy of Gaussian noise, relative to the image's.")
    ] = None,
    crafting: Annotated[int, typer.Option(help="Training images to craft universal perturbations on.")] = 1000,
    images: Annotated[int, typer.Option(help="Test images to measure on.")] = 1000,
    seeds: Annotated[str, typer.Option(metavar="0,1,...", help="One perturbation for each.")] = "0",
    target: Annotated[float, typer.Option(help="Percent fooled, at which uap and uap-sequential stop.")] = 80.0,
    overshoot: Annotated[float, typer.Option(help="Of DeepFool, inside uap and uap-sequential.")] = 0.02,
    passes: Annotated[int, typer.Option(help="Over the crafting images, at most.")] = 5,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Attack trained networks: how often the prediction changes, and what accuracy is left.

    Examples:

        detrame attack plainnet9:relu plainnet9:qmetric --radius 3/255 --unit pixels

        detrame attack runs/NAME runs/OTHER --radius 0.05 --unit normalised --attacks uap-gradient --seeds 0,1,2

        detrame attack runs/NAME --noise 0.001,0.01 --unit pixels
    """
    from detrame.experiments.robustness import Settings, named
    from detrame.experiments.robustness.stored import document
    from detrame.experiments.robustness.tables import rows

    radii, ratios = _values("--radius", radius), _values("--noise", noise)
    if not radii and not ratios:
        raise ValueError("how strong an attack? give --radius, as 8/255 with --unit pixels, or --noise, as 0.01")
    if unit is None:
        raise ValueError(
            f"{'--radius' if radii else '--noise'} needs its unit: --unit pixels for pixels in [0, 1], "
            "or --unit normalised for what the network sees once it has normalised them"
        )
    settings = Settings(crafting, images, tuple(numbers("--seeds", seeds)), target, overshoot, passes)
    networks = [network for run in runs for network in named(run)]
    measured = [
        one for network in networks for one in _measured(network, settings, device, radii, unit, norm, attacks, ratios)
    ]
    if as_json:
        print_document([document(one) for one in measured])
    else:
        print_robustness(rows(measured))


def _measured(
    network: "Network",
    settings: "Settings",
    device: str,
    radii: list[float],
    unit: str,
    norm: str,
    attacks: str,
    ratios: list[float],
) -> "list[Measured]":
    from detrame.experiments.robustness import UNIVERSAL, Bench
    from detrame.robustness import Ball

    _, std = network.normalisation
    balls = [Ball(radius, unit, norm, std) for radius in radii]
    chosen = attacks.split(",") if balls else []
    for name in chosen:
        if name not in UNIVERSAL:
            raise unknown("attack", name, UNIVERSAL)
    bench = Bench(network, settings, device)
    found = [bench.universal(name, balls) for name in chosen]
    return found + ([bench.noise(ratios, [unit])] if ratios else [])


def _values(option: str, text: str | None) -> list[float]:
    """Numbers or fractions with commas between."""
    try:
        return [float(Fraction(part)) if "/" in part else float(part) for part in text.split(",")] if text else []
    except (ValueError, ZeroDivisionError):
        raise ValueError(
            f"{option} takes numbers or fractions with commas between, as 4/255,0.05; got {text!r}"
        ) from None
