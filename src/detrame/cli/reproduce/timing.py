"""`detrame reproduce timing`."""

from pathlib import Path

from detrame.cli.arguments import AsJson, Device
from detrame.cli.reproduce.options import Models, Results, Show, names, need_stored
from detrame.cli.show import print_document, print_timing


def timing(
    models: Models = None,
    show: Show = False,
    results: Results = Path("results"),
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure the steps that the time table still lacks on this device, and print the paper's figures beside ours.

    Examples:

        detrame reproduce timing --show

        detrame reproduce timing --models resnet8
    """
    from detrame.cli.bench import measure_told
    from detrame.experiments import bench
    from detrame.experiments.timing import rows

    wanted, hardware = names(models), None
    if not show:
        where = bench.setting_on(device)
        left = bench.missing(bench.networks("steps", where, wanted), where, results)
        measure_told("steps", left, where, results, quiet=as_json)
        hardware = where.hardware
    table = rows(results, wanted, hardware=hardware)
    if show:
        need_stored(results)
    if as_json:
        print_document([vars(row) for row in table])
    else:
        print_timing(table)
