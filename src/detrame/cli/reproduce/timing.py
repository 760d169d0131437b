"""`detrame reproduce timing`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from detrame.cli.arguments import AsJson, Device, names
from detrame.cli.reproduce.options import (
    Budget,
    DryMeasurement,
    Models,
    Results,
    Show,
    need_stored,
    refuse_to_run,
    tell_left,
)
from detrame.cli.show import print_document, print_timing
from detrame.errors import OutOfTime


def timing(
    dataset: Annotated[str, typer.Option(help="The paper has times for cifar10 only.")] = "cifar10",
    models: Models = None,
    budget: Budget = None,
    dry_run: DryMeasurement = False,
    show: Show = False,
    results: Results = Path("results"),
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure what the time table lacks, and print the table.

    Measurements are taken on this device; on a CPU, of ResNet 8 and 20 only, unless you name others. When a --budget is
    spent, it stops after the current network. The table has the paper's figures beside ours, on the best hardware that
    was measured, or with --device on this machine.

    Examples:

        detrame reproduce timing --show

        detrame reproduce timing --models resnet8
    """
    from detrame.cli.bench import measure_told
    from detrame.experiments import bench
    from detrame.experiments.timing import rows

    if dataset != "cifar10":
        raise ValueError(f"the paper has times for cifar10 only, not for {dataset}")
    if show:
        refuse_to_run(budget)
    wanted = names("--models", models)
    hardware = None if device == "auto" else bench.setting_on(device).hardware
    if not show:
        where = bench.setting_on(device)
        left = bench.missing(bench.networks("steps", where, wanted), where, results)
        if dry_run:
            _list(left, where.hardware, as_json=as_json)
            return
        try:
            measure_told("steps", left, where, results, quiet=as_json, minutes=budget)
        except OutOfTime as stopped:
            tell_left(stopped, ", ".join(bench.missing(left, where, results)))
        hardware = where.hardware
    table = rows(results, wanted, hardware=hardware)
    if show:
        need_stored(results)
    if as_json:
        print_document([vars(row) for row in table])
    else:
        print_timing(table)


def _list(left: Sequence[str], hardware: str, *, as_json: bool) -> None:
    if as_json:
        print_document([{"model": model, "hardware": hardware} for model in left])
        return
    print("\n".join([*left, f"networks whose steps are missing on {hardware}: {len(left)}"]))
