"""`detrame reproduce accuracy`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from detrame.cli.arguments import AsJson, Device, numbers
from detrame.cli.reproduce.options import Budget, Dataset, DryRun, Models, Results, Seeds, Show, names
from detrame.cli.show import epochs_shown, print_accuracy, print_document

if TYPE_CHECKING:  # torch is imported where it is used, so that --help starts at once
    from detrame.training import Recipe, Run


def accuracy(
    dataset: Dataset = None,
    models: Models = None,
    seeds: Seeds = "0",
    epochs: Annotated[
        int | None, typer.Option(help="Shorter runs than the paper's; the table leaves them out.")
    ] = None,
    budget: Budget = None,
    dry_run: DryRun = False,
    show: Show = False,
    results: Results = Path("results"),
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Train what the accuracy table still lacks, and print the paper's figures beside ours.

    Examples:

        detrame reproduce accuracy --show

        detrame reproduce accuracy --dataset cifar10 --models plainnet9,resnet20 --seeds 0,1,2 --budget 30
    """
    from detrame.experiments import reproduce as tables

    cells = tables.cells(dataset, names(models))
    wanted = tables.recipes(cells, numbers("--seeds", seeds), epochs=epochs)
    if dry_run:
        _list_missing(wanted, results, as_json)
        return
    if not show:
        _run(wanted, results, device, budget, quiet=as_json)
    from detrame.experiments.results import stored

    rows = tables.accuracy_rows(stored(results), cells)
    if as_json:
        print_document([vars(row) for row in rows if row.n])
    else:
        print_accuracy(rows)


def _run(wanted: "list[Recipe]", results: Path, device: str, budget: float | None, *, quiet: bool) -> None:
    from detrame.experiments import reproduce as tables

    left = tables.missing(wanted, results)

    def tell(run: "Run") -> None:
        if not quiet:
            print(f"{run.recipe.model} {run.recipe.activation} seed {run.recipe.seed}: {run.scores.last:.2f}%")

    with epochs_shown(sum(recipe.epochs for recipe in left), quiet=quiet) as on_epoch:
        tables.run_missing(
            wanted, results, Path("runs/reproduce"), device=device, minutes=budget, on_epoch=on_epoch, on_result=tell
        )


def _list_missing(wanted: "list[Recipe]", results: Path, as_json: bool) -> None:
    from detrame.experiments import reproduce as tables
    from detrame.experiments.results import result_name, stored

    known = stored(results)
    expected = {
        result_name(recipe): tables.expected_seconds(recipe, known) for recipe in tables.missing(wanted, results)
    }
    if as_json:
        print_document([{"run": name, "expected_seconds": seconds} for name, seconds in expected.items()])
        return
    for name, seconds in expected.items():
        print(f"{name}: " + (f"about {seconds / 60:.1f} minutes" if seconds else "never run before"))
    print(f"{len(expected)} of {len(wanted)} runs are missing")
