"""`detrame reproduce changes`."""

from pathlib import Path
from typing import Annotated

import typer

from detrame.cli.arguments import AsJson, Device, names
from detrame.cli.reproduce.options import Budget, DryRun, Results, Seeds, Show, seeds_of
from detrame.cli.reproduce.runs import results_of
from detrame.cli.show import print_changes, print_document
from detrame.errors import Failure


def changes(
    models: Annotated[
        str, typer.Option(metavar="NAME,NAME,...", help="Only these networks of the paper.")
    ] = "wideresnet16_4",
    dataset: Annotated[str, typer.Option(help="The data set.")] = "cifar10",
    final: Annotated[
        str | None,
        typer.Option(metavar="CHANGE", help="Train this change at full length, and score it on the test images."),
    ] = None,
    seeds: Seeds = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of each short run. [default: 30]")] = None,
    budget: Budget = None,
    dry_run: DryRun = False,
    show: Show = False,
    results: Results = Path("results"),
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Try changes one at a time where Q-Metric falls short.

    Each change is tried in short runs, which are scored on 5,000 held-out training images. Once you have chosen a
    change by these scores, --final trains it at full length with both activations, and scores it on the test images.

    Examples:

        detrame reproduce changes --show

        detrame reproduce changes --models wideresnet16_4,resnet56 --epochs 20

        detrame reproduce changes --final nesterov
    """
    from detrame.experiments import changes as table
    from detrame.experiments import paper
    from detrame.experiments.results import stored

    if show and final is not None:
        raise ValueError("--show prints every change that was trained at full length: leave --final out")
    if final is not None and epochs is not None:
        raise ValueError("--final trains at full length: leave --epochs out")
    cells = paper.cells(dataset, names("--models", models))  # which says so if the paper has no such network
    wanted = [
        recipe
        for model, _ in cells
        for seed in seeds_of(seeds, show=show)
        for pair in (
            table.recipes(model, dataset, seed, epochs=epochs).values()
            if final is None
            else [table.final_recipes(model, dataset, final, seed)]
        )
        for recipe in pair
    ]
    found = results_of(wanted, results, device, budget, dry_run=dry_run, show=show, as_json=as_json, table=table.TABLE)
    full = stored(results)
    short = [row for model, _ in cells for row in table.rows(found, model, dataset, epochs=epochs)]
    short = short if any(row.n for row in short) else []
    long = [row for model, _ in cells for row in table.final_rows(found, full, model, dataset)]
    if not short and not long:
        raise Failure(f"nothing is stored yet for these runs in {results}: `detrame reproduce changes` trains them")
    if as_json:
        print_document([vars(row) for row in [*short, *long] if row.n])
        return
    for rows in filter(None, (short, long)):
        print_changes(rows)
