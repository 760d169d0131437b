"""`detrame reproduce accuracy`."""

from pathlib import Path

from detrame.cli.arguments import AsJson, Device, numbers
from detrame.cli.reproduce.options import (
    Budget,
    Dataset,
    DryRun,
    Epochs,
    Models,
    Results,
    Seeds,
    Show,
    names,
    need_stored,
)
from detrame.cli.reproduce.runs import list_missing, train_missing
from detrame.cli.show import print_accuracy, print_document


def accuracy(
    dataset: Dataset = None,
    models: Models = None,
    seeds: Seeds = "0",
    epochs: Epochs = None,
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
        list_missing(wanted, results, as_json=as_json)
        return
    if show:
        need_stored(results)
    else:
        train_missing(wanted, results, device, budget, quiet=as_json)
    from detrame.experiments.results import stored

    rows = tables.accuracy_rows(stored(results), cells)
    if as_json:
        print_document([vars(row) for row in rows if row.n])
    else:
        print_accuracy(rows)
