"""`detrame reproduce controls`."""

from pathlib import Path

from detrame.cli.arguments import AsJson, Device, names
from detrame.cli.reproduce.options import Budget, DryRun, Epochs, Models, Results, Seeds, Show, seeds_of
from detrame.cli.reproduce.runs import results_of
from detrame.cli.show import print_controls, print_document


def controls(
    models: Models = None,
    seeds: Seeds = None,
    epochs: Epochs = None,
    budget: Budget = None,
    dry_run: DryRun = False,
    show: Show = False,
    results: Results = Path("results"),
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Train ReLU networks that cost as much as a Q-Metric one.

    The paper lacks such networks. For PlainNet 9 and ResNet 20 on CIFAR-10, one is widened until it has as many
    parameters, and one until it takes as many multiply-adds. The table has them beside the Q-Metric network.

    Examples:

        detrame reproduce controls --show

        detrame reproduce controls --models resnet20 --seeds 0,1,2 --budget 30
    """
    from detrame.experiments import controls as table

    chosen = table.controlled(names("--models", models))
    wanted = table.recipes(chosen, seeds_of(seeds, show=show), epochs=epochs)
    found = results_of(wanted, results, device, budget, dry_run=dry_run, show=show, as_json=as_json)
    rows = table.rows(found, chosen, epochs=epochs)
    if as_json:
        print_document([vars(row) for row in rows if row.n])
    else:
        print_controls(rows)
