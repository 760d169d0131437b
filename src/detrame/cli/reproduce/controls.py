"""`detrame reproduce controls`."""

from pathlib import Path

from detrame.cli.arguments import AsJson, Device, numbers
from detrame.cli.reproduce.options import Budget, DryRun, Epochs, Results, Seeds, Show, need_stored
from detrame.cli.reproduce.runs import list_missing, train_missing
from detrame.cli.show import print_controls, print_document


def controls(
    seeds: Seeds = "0",
    epochs: Epochs = None,
    budget: Budget = None,
    dry_run: DryRun = False,
    show: Show = False,
    results: Results = Path("results"),
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Train ReLU networks widened to what a Q-Metric network costs, which the paper lacks, and print them beside it.

    One has as many parameters, one takes as many multiply-adds; for PlainNet 9 and ResNet 20 on CIFAR-10.

    Examples:

        detrame reproduce controls --show

        detrame reproduce controls --seeds 0,1,2 --budget 30
    """
    from detrame.experiments.controls import control_recipes, control_rows
    from detrame.experiments.results import stored

    wanted = control_recipes(numbers("--seeds", seeds), epochs=epochs)
    if dry_run:
        list_missing(wanted, results, as_json=as_json)
        return
    if show:
        need_stored(results)
    else:
        train_missing(wanted, results, device, budget, quiet=as_json)
    rows = control_rows(stored(results))
    if as_json:
        print_document([vars(row) for row in rows if row.n])
    else:
        print_controls(rows)
