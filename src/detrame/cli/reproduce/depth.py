"""`detrame reproduce depth`."""

from pathlib import Path
from typing import Annotated

import typer

from detrame.cli.arguments import AsJson, Device, names, numbers
from detrame.cli.reproduce.options import Budget, DryRun, Results, Seeds, Show, seeds_of
from detrame.cli.reproduce.runs import results_of
from detrame.cli.show import print_depth, print_document
from detrame.errors import Failure


def depth(
    dataset: Annotated[str, typer.Option(help="digits or cifar10.")] = "digits",
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,...",
            help="Only these, out of relu, lista, slstm, qmetric, ddl. [default: relu,qmetric,ddl]",
        ),
    ] = None,
    depths: Annotated[str | None, typer.Option(metavar="3,6,...", help="Only these depths. [default: 3 to 36]")] = None,
    seeds: Seeds = None,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of each run. [default: 12 on digits, 5 on CIFAR-10]")
    ] = None,
    budget: Budget = None,
    dry_run: DryRun = False,
    show: Show = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Also draw accuracy against depth.")] = None,
    results: Results = Path("results"),
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Train DDL, Q-Metric and ReLU networks of growing depth.

    It shows how deep each can go on a small budget.

    Examples:

        detrame reproduce depth --show --plot depth.svg

        detrame reproduce depth --dataset cifar10 --depths 12,24,36 --budget 10
    """
    from detrame.experiments import depth as table
    from detrame.training.files import ready_to_write, write_text

    if plot is not None and plot.suffix != ".svg":
        raise ValueError(f"--plot draws an SVG: name a file that ends in .svg, got {plot}")
    layers = numbers("--depths", depths) if depths else table.DEPTHS
    chosen = names("--methods", methods) or table.METHODS
    wanted = [
        table.recipe_of(method, number, dataset, epochs=epochs, seed=seed)
        for seed in seeds_of(seeds, show=show)
        for number in layers
        for method in chosen
    ]
    if plot is not None and not dry_run:
        ready_to_write(plot)
    found = results_of(wanted, results, device, budget, dry_run=dry_run, show=show, as_json=as_json, table=table.TABLE)
    rows = table.rows(found, dataset, chosen, layers, epochs=epochs)
    if not any(row.n for row in rows):
        raise Failure(f"nothing is stored yet for these networks in {results}: `detrame reproduce depth` trains them")
    if plot is not None:
        write_text(plot, table.plot(rows))
    if as_json:
        print_document([vars(row) for row in rows if row.n])
    else:
        print_depth(rows)
