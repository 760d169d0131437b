"""`detrame reproduce uap` and `detrame reproduce noise`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from detrame.cli.arguments import AsJson, Device, numbers
from detrame.cli.reproduce.options import Budget, Dataset, DryRun, Models, Results, Show, names
from detrame.cli.show import print_document, print_robustness

if TYPE_CHECKING:  # torch is imported where it is used, so that --help starts at once
    from detrame.experiments.robustness import Measured, Network, Settings

Runs = Annotated[Path, typer.Option(help="Where `detrame reproduce accuracy` trained the networks.")]
Seeds = Annotated[str, typer.Option(metavar="0,1,...", help="One perturbation, or one draw of noise, for each.")]
Images = Annotated[int, typer.Option(help="Test images to measure on.")]


def uap(
    dataset: Dataset = None,
    models: Models = None,
    seeds: Seeds = "0,1,2,3,4",
    crafting: Annotated[int, typer.Option(help="Training images to craft on.")] = 10_000,
    images: Images = 10_000,
    passes: Annotated[int, typer.Option(help="Over the crafting images, at most.")] = 2,
    runs: Runs = Path("runs/reproduce"),
    budget: Budget = None,
    dry_run: DryRun = False,
    show: Show = False,
    results: Results = Path("results"),
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Craft universal perturbations against the paper's networks, and print its fooling rates beside ours.

    Networks that were not trained by `detrame reproduce accuracy` are taken from the package, where they are there.

    Examples:

        detrame reproduce uap --show

        detrame reproduce uap --models plainnet9 --dataset cifar10 --crafting 1000 --images 1000
    """
    from detrame.experiments.robustness import Settings
    from detrame.experiments.robustness.tables import UAP

    settings = Settings(crafting=crafting, images=images, seeds=tuple(numbers("--seeds", seeds)), passes=passes)
    _reproduce(UAP, dataset, names(models), settings, runs, budget, dry_run, show, results, device, as_json)


def noise(
    dataset: Dataset = None,
    models: Models = None,
    seeds: Seeds = "0,1,2,3,4",
    images: Images = 10_000,
    runs: Runs = Path("runs/reproduce"),
    budget: Budget = None,
    dry_run: DryRun = False,
    show: Show = False,
    results: Results = Path("results"),
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Add Gaussian noise to the test images, and print how often it changes what the paper's networks say.

    Example: detrame reproduce noise --models plainnet9,resnet20 --dataset cifar10 --images 1000
    """
    from detrame.experiments.robustness import Settings

    settings = Settings(images=images, seeds=tuple(numbers("--seeds", seeds)))
    _reproduce(("noise",), dataset, names(models), settings, runs, budget, dry_run, show, results, device, as_json)


def _reproduce(
    attacks: tuple[str, ...],
    dataset: str | None,
    models: list[str] | None,
    settings: "Settings",
    runs: Path,
    budget: float | None,
    dry_run: bool,
    show: bool,
    results: Path,
    device: str,
    as_json: bool,
) -> None:
    from detrame.experiments.robustness import tables, trained
    from detrame.experiments.robustness.stored import stored

    cases = tables.cases(dataset, models, runs)
    if not show:
        found = {case: trained(*case, runs) for case in cases}
        networks = [network for network in found.values() if network is not None]
        for (model, data, activation), network in found.items():
            if network is None:
                hint = f"detrame reproduce accuracy --dataset {data} --models {model}"
                print(f"{model} {activation} on {data} is not trained: `{hint}` trains it", file=sys.stderr)
        if dry_run:
            _list_missing(tables.missing(networks, attacks, settings, results), as_json)
            return
        tables.run_missing(
            networks, attacks, settings, results, device=device, minutes=budget, on_result=None if as_json else _tell
        )
    measurements = [one for attack in attacks for one in stored(results, attack)]
    rows = tables.rows(
        one
        for one in measurements
        if one.dataset == (dataset or one.dataset) and (models is None or one.model in models)
    )
    if as_json:
        print_document([row.document() for row in rows])
    else:
        print_robustness(rows)


def _tell(measured: "Measured") -> None:
    print(f"{measured.model} {measured.activation} on {measured.dataset}, {measured.attack}: {measured.seconds:.1f} s")


def _list_missing(left: "list[tuple[Network, str]]", as_json: bool) -> None:
    if as_json:
        print_document([{"network": network.label, "data": network.recipe.dataset, "attack": a} for network, a in left])
        return
    for network, attack in left:
        print(f"{network.label} on {network.recipe.dataset}, from {network.source}: {attack}")
    print(f"{len(left)} measurements are missing")
