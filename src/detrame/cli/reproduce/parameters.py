"""`detrame reproduce parameters`."""

from detrame.cli.arguments import AsJson, names
from detrame.cli.reproduce.options import Dataset, Models, Show
from detrame.cli.show import print_document, print_parameters


def parameters(dataset: Dataset = None, models: Models = None, show: Show = False, as_json: AsJson = False) -> None:
    """Count the parameters of the paper's networks.

    The table also has the few counts that the paper prints.

    Example: detrame reproduce parameters --dataset cifar10
    """
    from detrame.experiments import paper
    from detrame.experiments import parameters as table

    rows = table.rows(paper.cells(dataset, names("--models", models)))
    if as_json:
        print_document([vars(row) for row in rows])
    else:
        print_parameters(rows)
