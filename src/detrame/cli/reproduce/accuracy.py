"""`detrame reproduce accuracy`."""

from pathlib import Path

from detrame.cli.arguments import AsJson, Device, names
from detrame.cli.reproduce.options import Budget, Dataset, DryRun, Epochs, Models, Results, Seeds, Show, seeds_of
from detrame.cli.reproduce.runs import results_of
from detrame.cli.show import print_accuracy, print_document


def accuracy(
    dataset: Dataset = None,
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
    """Train what the accuracy table lacks, and print the table.

    The table has the paper's figures beside ours. Networks are trained in the order in which you name them; if you name
    none, long ones beside short ones. On a GPU, several train at once.

    Examples:

        detrame reproduce accuracy --show

        detrame reproduce accuracy --dataset cifar10 --models plainnet9,resnet20 --seeds 0,1,2 --budget 30
    """
    from detrame.experiments import accuracy as table
    from detrame.experiments import paper

    cells = paper.cells(dataset, names("--models", models))
    order = cells if models else table.long_beside_short(cells)
    wanted = table.recipes(order, seeds_of(seeds, show=show), epochs=epochs)
    found = results_of(wanted, results, device, budget, dry_run=dry_run, show=show, as_json=as_json)
    rows = table.rows(found, cells, epochs=epochs)
    if as_json:
        print_document([vars(row) | {"verdict": row.verdict} for row in rows if row.n])
    else:
        print_accuracy(rows)
