"""`detrame reproduce changes`."""

from pathlib import Path
from typing import Annotated

import typer

from detrame.cli.arguments import AsJson, Device
from detrame.cli.reproduce.options import Budget, DryRun, Results, Seeds, Show, seeds_of
from detrame.cli.reproduce.runs import results_of
from detrame.cli.show import print_changes, print_document
from detrame.errors import Failure


def changes(
    model: Annotated[str, typer.Option(help="A network of the paper.")] = "wideresnet16_8",
    dataset: Annotated[str, typer.Option(help="A data set of the table.")] = "cifar10",
    seeds: Seeds = None,
    epochs: Annotated[int | None, typer.Option(help="Of each run. [default: 30]")] = None,
    budget: Budget = None,
    dry_run: DryRun = False,
    show: Show = False,
    results: Results = Path("results"),
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Where Q-Metric falls short: short runs with one thing changed, scored on 5,000 held-out training images.

    Examples:

        detrame reproduce changes --show

        detrame reproduce changes --model wideresnet16_4 --epochs 20
    """
    from detrame.experiments import changes as table
    from detrame.experiments import reproduce

    reproduce.cells(dataset, [model])  # which says so if the paper has no such network or data
    wanted = [
        recipe
        for seed in seeds_of(seeds, show=show)
        for pair in table.recipes(model, dataset, seed, epochs=epochs).values()
        for recipe in pair
    ]
    found = results_of(wanted, results, device, budget, dry_run=dry_run, show=show, as_json=as_json, table=table.TABLE)
    if found is None:
        return
    rows = table.rows(found, model, dataset, epochs=epochs)
    if not any(row.n for row in rows):
        raise Failure(f"nothing is stored yet of these runs in {results}: `detrame reproduce changes` trains them")
    if as_json:
        print_document([vars(row) for row in rows if row.n])
    else:
        print_changes(rows)
