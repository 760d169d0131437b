"""How the command line shows results: as a table for people, or as one JSON document for scripts."""

import json

from rich.console import Console
from rich.table import Table

from detrame.models import ModelInfo


def print_models(infos: dict[str, ModelInfo], *, as_json: bool) -> None:
    """The networks with the cost of either activation."""
    if as_json:
        document = [
            {"model": name, "relu": info.relu._asdict(), "qmetric": info.qmetric._asdict()}
            for name, info in infos.items()
        ]
        print(json.dumps(document, indent=2))
        return
    table = Table()
    table.add_column("model")
    for heading in ("parameters, M", "", "multiply-adds, M", "", ""):
        table.add_column(heading, justify="right")
    table.add_row("", "ReLU", "Q-Metric", "ReLU", "Q-Metric", "ratio", style="dim", end_section=True)
    for name, (relu, qmetric) in infos.items():
        counts = [relu.parameters, qmetric.parameters, relu.multiply_adds, qmetric.multiply_adds]
        ratio = qmetric.multiply_adds / relu.multiply_adds
        table.add_row(name, *[f"{count / 1e6:,.2f}" for count in counts], f"{ratio:.2f}")
    Console().print(table)
