"""`detrame reproduce uap` and `detrame reproduce noise`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from detrame.cli.arguments import AsJson, Device, numbers
from detrame.cli.reproduce.options import Budget, Dataset, Models, Results, Show, names, need_stored
from detrame.cli.reproduce.runs import FOLDER
from detrame.cli.show import print_document, print_robustness
from detrame.errors import Failure

if TYPE_CHECKING:  # torch is imported where it is used, so that --help starts at once
    from detrame.experiments.robustness import Measured, Network

Runs = Annotated[Path, typer.Option(help="Where `detrame reproduce accuracy` trained the networks.")]
Seeds = Annotated[str, typer.Option(metavar="0,1,...", help="One perturbation, or one draw of noise, for each.")]
DryMeasurement = Annotated[bool, typer.Option("--dry-run", help="List the missing measurements and take none.")]
Images = Annotated[int, typer.Option(help="Test images to measure on.")]
Out = Annotated[Path | None, typer.Option(help="Also write a page with curves and pictures.")]


def uap(
    dataset: Dataset = None,
    models: Models = None,
    seeds: Seeds = "0,1,2,3,4",
    crafting: Annotated[int, typer.Option(help="Training images to craft on.")] = 10_000,
    images: Images = 10_000,
    passes: Annotated[int, typer.Option(help="Over the crafting images, at most.")] = 2,
    runs: Runs = FOLDER / "accuracy",
    budget: Budget = None,
    dry_run: DryMeasurement = False,
    show: Show = False,
    results: Results = Path("results"),
    out: Out = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Craft universal perturbations against the paper's networks, and print its fooling rates beside ours.

    Networks that were not trained by `detrame reproduce accuracy` are taken from the package, where they are there.

    Examples:

        detrame reproduce uap --show

        detrame reproduce uap --models plainnet9 --dataset cifar10 --crafting 1000 --images 1000 --out uap.html
    """
    from detrame.experiments.robustness import Settings, tables
    from detrame.training.files import ready_to_write

    settings = Settings(crafting=crafting, images=images, seeds=tuple(numbers("--seeds", seeds)), passes=passes)
    chosen = names(models)
    if out is not None:
        ready_to_write(out)
    if show:
        need_stored(results)
    else:
        networks = _trained(dataset, chosen, runs)
        if dry_run:
            _list(tables.missing(networks, tables.UAP, settings, results), as_json)
            return
        tell = None if as_json else _tell
        tables.run_missing(networks, tables.UAP, settings, results, device=device, minutes=budget, on_result=tell)
    _show(tables.UAP, dataset, chosen, results, out, as_json)


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
    """Add Gaussian noise to the test images, and print how often it changes what the paper's networks say.

    Example: detrame reproduce noise --models plainnet9,resnet20 --dataset cifar10 --images 1000
    """
    from detrame.experiments.robustness import Settings, tables
    from detrame.training.files import ready_to_write

    settings = Settings(images=images, seeds=tuple(numbers("--seeds", seeds)))
    chosen = names(models)
    if out is not None:
        ready_to_write(out)
    if show:
        need_stored(results)
    else:
        networks = _trained(dataset, chosen, runs)
        if dry_run:
            _list(tables.missing(networks, tables.NOISE, settings, results), as_json)
            return
        tell = None if as_json else _tell
        tables.run_missing(networks, tables.NOISE, settings, results, device=device, minutes=budget, on_result=tell)
    _show(tables.NOISE, dataset, chosen, results, out, as_json)


def _trained(dataset: str | None, models: list[str] | None, runs: Path) -> "list[Network]":
    """The networks that are there; a line on stderr names each that is not."""
    from detrame.experiments.robustness import tables, trained

    found = []
    for model, data, activation in tables.cases(dataset, models, runs):
        if network := trained(model, data, activation, runs):
            found.append(network)
        else:
            hint = f"detrame reproduce accuracy --dataset {data} --models {model}"
            print(f"{model} {activation} on {data} is not trained: `{hint}` trains it", file=sys.stderr)
    return found


def _list(left: "list[tuple[Network, str]]", as_json: bool) -> None:
    if as_json:
        print_document([{"network": network.label, "data": network.recipe.dataset, "attack": a} for network, a in left])
        return
    for network, attack in left:
        print(f"{network.label} on {network.recipe.dataset}, from {network.source}: {attack}")
    print(f"{len(left)} measurements are missing")


def _tell(measured: "Measured") -> None:
    print(f"{measured.model} {measured.activation} on {measured.dataset}, {measured.attack}: {measured.seconds:.1f} s")


def _show(
    attacks: tuple[str, ...],
    dataset: str | None,
    models: list[str] | None,
    results: Path,
    out: Path | None,
    as_json: bool,
) -> None:
    from detrame.experiments.reproduce import cells
    from detrame.experiments.robustness import page, tables
    from detrame.experiments.robustness.stored import stored

    wanted = set(cells(dataset, models))
    found = [one for name in attacks for one in stored(results, name) if (one.model, one.dataset) in wanted]
    if not found:
        again = f"detrame reproduce {attacks[0]}"
        raise Failure(f"nothing is stored yet of these networks in {results}: `{again}` measures it")
    if out is not None:
        page.write(found, out)
    if as_json:
        print_document([row.document() for row in tables.rows(found)])
        return
    print_robustness(tables.rows(found))
    if out is not None:
        print(out)
