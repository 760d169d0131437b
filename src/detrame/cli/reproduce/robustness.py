"""`detrame reproduce uap`, `detrame reproduce noise` and `detrame reproduce attacks`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from detrame.cli.arguments import AsJson, Device, names, numbers
from detrame.cli.reproduce.options import (
    Budget,
    Dataset,
    DryMeasurement,
    Results,
    Show,
    need_stored,
    refuse_to_run,
    tell_left,
)
from detrame.cli.reproduce.runs import FOLDER
from detrame.cli.show import print_checks, print_document, print_robustness, tell_begun, tell_measured
from detrame.errors import Failure, OutOfTime

if TYPE_CHECKING:  # torch is imported where it is used, so that --help starts at once
    from detrame.experiments.networks import Network
    from detrame.experiments.robustness import Settings

Models = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME,...",
        help="Only these networks. [default: the paper's: PlainNet 9, the deepest trained ResNet, WideResNet 16-8]",
    ),
]
Runs = Annotated[Path, typer.Option(help="Where `detrame reproduce accuracy` trained the networks.")]
Seeds = Annotated[str, typer.Option(metavar="0,1,...", help="One perturbation, or one draw of noise, per seed.")]
Images = Annotated[int, typer.Option(help="Test images to measure on.")]
Out = Annotated[
    Path | None, typer.Option(help="Also write a page with curves and pictures; the curves are also saved beside it.")
]


def uap(
    dataset: Dataset = None,
    models: Models = None,
    seeds: Seeds = "0,1,2,3,4",
    crafting: Annotated[int, typer.Option(help="Training images to craft on.")] = 10_000,
    images: Images = 10_000,
    passes: Annotated[int, typer.Option(help="Maximum number of passes over the crafting images.")] = 2,
    runs: Runs = FOLDER / "accuracy",
    budget: Budget = None,
    dry_run: DryMeasurement = False,
    show: Show = False,
    results: Results = Path("results"),
    out: Out = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Craft universal perturbations against the paper's networks.

    The table has the paper's fooling rates beside ours. Networks that `detrame reproduce accuracy` has not trained are
    taken from the package, if it has them.

    Examples:

        detrame reproduce uap --show

        detrame reproduce uap --models plainnet9 --dataset cifar10 --crafting 1000 --images 1000 --out uap.html
    """
    from detrame.experiments.robustness import Settings, tables

    settings = Settings(crafting=crafting, images=images, seeds=tuple(numbers("--seeds", seeds)), passes=passes)
    table = _Table("uap", tables.UAP, dataset, names("--models", models), results, out, as_json)
    table.measure_or_show(settings, runs, device, budget, dry_run=dry_run, show=show)


def noise(
    dataset: Dataset = None,
    models: Models = None,
    seeds: Seeds = "0,1,2,3,4",
    images: Images = 10_000,
    runs: Runs = FOLDER / "accuracy",
    budget: Budget = None,
    dry_run: DryMeasurement = False,
    show: Show = False,
    results: Results = Path("results"),
    out: Out = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Count the predictions that change under Gaussian noise.

    The noise is added to the test images, and the predictions are those of the paper's networks.

    Example: detrame reproduce noise --models plainnet9,resnet20 --dataset cifar10 --images 1000
    """
    from detrame.experiments.robustness import Settings, tables

    settings = Settings(images=images, seeds=tuple(numbers("--seeds", seeds)))
    table = _Table("noise", tables.NOISE, dataset, names("--models", models), results, out, as_json)
    table.measure_or_show(settings, runs, device, budget, dry_run=dry_run, show=show)


def attacks(
    dataset: Dataset = None,
    models: Models = None,
    seeds: Annotated[str, typer.Option(metavar="0,1,...", help="One random start per seed.")] = "0",
    images: Images = 1000,
    runs: Runs = FOLDER / "accuracy",
    budget: Budget = None,
    dry_run: DryMeasurement = False,
    show: Show = False,
    results: Results = Path("results"),
    out: Out = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Attack each image by itself, with PGD and AutoAttack.

    It also checks that no network merely hides its gradients. The paper has no such table, but an accuracy under attack
    has to stand up to it. When a --budget is spent, it stops after the current radius, which takes minutes on a CPU.
    This needs the extra `attacks`.

    Example: detrame reproduce attacks --models plainnet9 --dataset cifar10 --images 100
    """
    from detrame.experiments.robustness import Settings, tables

    settings = Settings(images=images, seeds=tuple(numbers("--seeds", seeds)))
    table = _Table("attacks", tables.EACH_IMAGE, dataset, names("--models", models), results, out, as_json)
    table.measure_or_show(settings, runs, device, budget, dry_run=dry_run, show=show)


@dataclass(frozen=True)
class _Table:
    """What all three commands do with the figures of some attacks on some networks."""

    name: str
    attacks: tuple[str, ...]
    dataset: str | None
    models: list[str] | None
    results: Path
    out: Path | None
    as_json: bool

    def measure_or_show(
        self, settings: "Settings", runs: Path, device: str, budget: float | None, *, dry_run: bool, show: bool
    ) -> None:
        """Take the missing measurements, or list them, or do neither; and print what is stored."""
        from detrame.experiments.robustness import lacking
        from detrame.training.files import ready_to_write

        if self.out is not None:
            ready_to_write(self.out)
        if show:
            refuse_to_run(budget, device)
            need_stored(self.results)
            self._print()
            return
        networks = self._trained(runs)
        if dry_run:
            _list(lacking.missing(networks, self.attacks, settings, self.results), self.as_json)
            return
        begin, tell = (None, None) if self.as_json else (tell_begun, tell_measured)
        try:
            lacking.run_missing(
                networks,
                self.attacks,
                settings,
                self.results,
                device=device,
                minutes=budget,
                on_begin=begin,
                on_result=tell,
            )
        except OutOfTime as stopped:
            left = lacking.missing(networks, self.attacks, settings, self.results)
            tell_left(stopped, f"{len(left)} measurements")
        self._print()

    def _trained(self, runs: Path) -> "list[Network]":
        """The networks that are there; a line on stderr names each that is not, unless all is stored of it."""
        from detrame.experiments.networks import trained
        from detrame.experiments.robustness import tables
        from detrame.experiments.robustness.stored import path_of

        found = []
        for model, data, activation in tables.cases(self.dataset, self.models, runs):
            if network := trained(model, data, activation, runs):
                found.append(network)
            elif any(not path_of(self.results, name, data, model, activation).exists() for name in self.attacks):
                hint = f"detrame reproduce accuracy --dataset {data} --models {model}"
                print(f"{model} {activation} on {data} is not trained: `{hint}` trains it", file=sys.stderr)
        return found

    def _print(self) -> None:
        from detrame.experiments.paper import cells
        from detrame.experiments.robustness import page, tables
        from detrame.experiments.robustness.stored import stored

        wanted = set(cells(self.dataset, self.models))
        found = [one for name in self.attacks for one in stored(self.results, name)]
        found = [one for one in found if (one.model, one.dataset) in wanted]
        if not found:
            again = f"detrame reproduce {self.name}"
            raise Failure(f"nothing is stored yet for these networks in {self.results}: `{again}` measures it")
        if self.out is not None:
            page.write(found, self.out)
        rows = tables.weakest_first(tables.rows(found))
        if self.as_json:
            print_document([row.document() for row in rows])
            return
        print_robustness(rows)
        print_checks(found)
        if self.out is not None:
            print(self.out)


def _list(left: "list[tuple[Network, str]]", as_json: bool) -> None:
    if as_json:
        print_document([{"network": network.label, "data": network.recipe.dataset, "attack": a} for network, a in left])
        return
    for network, attack in left:
        print(f"{network.label} on {network.recipe.dataset}, from {network.source}: {attack}")
    print(f"measurements of trained networks that are missing: {len(left)}")
