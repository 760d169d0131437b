"""`detrame reproduce ddl`."""

from pathlib import Path
from typing import Annotated

import typer

from detrame.cli.arguments import AsJson, Device, names
from detrame.cli.reproduce.options import Budget, DryRun, Methods, Results, Seeds, Show, seeds_of
from detrame.cli.reproduce.runs import results_of
from detrame.cli.show import print_ddl, print_document


def ddl(
    dataset: Annotated[
        str | None, typer.Option(help="cifar10, cifar100 or digits. [default: cifar10; with --show, all]")
    ] = None,
    methods: Methods = None,
    seeds: Seeds = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of each run; the table shows them. [default: 20]")] = None,
    budget: Budget = None,
    dry_run: DryRun = False,
    show: Show = False,
    results: Results = Path("results"),
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Train DDL, LISTA, SLSTM, Q-Metric and ReLU in one shape.

    DDL is deep dictionary learning. The table has accuracy and time per image.

    Examples:

        detrame reproduce ddl --show

        detrame reproduce ddl --dataset digits --methods ddl,qmetric --seeds 0,1,2
    """
    from detrame.experiments import ddl as table

    chosen = names("--methods", methods) or list(table.METHODS)
    trained_on = dataset or table.DATASETS[0]
    wanted = [
        table.recipe_of(method, trained_on, epochs=epochs, seed=seed)
        for seed in seeds_of(seeds, show=show)
        for method in chosen
    ]
    found = results_of(
        wanted,
        results,
        device,
        budget,
        dry_run=dry_run,
        show=show,
        as_json=as_json,
        table=table.TABLE,
        timed=table.timing,
    )
    shown = table.DATASETS if show and dataset is None else [trained_on]
    rows = [row for name in shown for row in table.rows(found, name, chosen, epochs=epochs)]
    if as_json:
        print_document([vars(row) for row in rows if row.n])
    else:
        print_ddl(rows)
