"""How the command line shows things: tables and bars for people, one JSON document for scripts."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # torch is imported where it is used, so that --help starts at once
    from detrame.experiments import accuracy, changes, controls, ddl, depth, parameters, timing
    from detrame.experiments.bench import Steps
    from detrame.experiments.networks import Network
    from detrame.experiments.plans import Summary
    from detrame.experiments.robustness import Measured, tables
    from detrame.models import ModelInfo
    from detrame.training import Epoch, OnEpoch, Run


def print_document(document: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(document, indent=2))


def print_models(infos: "dict[str, ModelInfo]") -> None:
    """The networks with the cost of either activation."""
    table = _table(
        ["\nmodel"], ["parameters, M\nReLU", "\nQ-Metric", "multiply-adds, M\nReLU", "\nQ-Metric", "\nratio"]
    )
    for name, (relu, qmetric) in infos.items():
        counts = [relu.parameters, qmetric.parameters, relu.multiply_adds, qmetric.multiply_adds]
        ratio = qmetric.multiply_adds / relu.multiply_adds
        table.add_row(name, *[f"{count / 1e6:,.2f}" for count in counts], f"{ratio:.2f}")
    _print(table)


def print_summaries(summaries: "Sequence[Summary]") -> None:
    """One row for each network: the last epoch's test accuracy is the headline."""
    table = _table(["network", "data"], ["parameters", "test, %", "best, %", "seeds", "train, s"])
    for row in summaries:
        accuracy = _spread(row.mean, row.std)
        figures = [f"{row.parameters:,}", accuracy, f"{row.best:.2f}", str(row.n), f"{row.seconds:.1f}"]
        table.add_row(_network(row), row.dataset, *figures)
    _print(table)


def print_accuracy(rows: "Sequence[accuracy.Row]") -> None:
    """The paper's accuracy table: its figure, ours, the difference and a verdict."""
    table = _table(["network", "data"], ["paper, %", "ours, %", "difference", "seeds"])
    table.add_column("verdict")
    for row in rows:
        paper, ours = _spread(row.paper, row.paper_std), _spread(row.mean, row.std)
        gap = "" if row.mean is None else f"{row.mean - row.paper:+.2f}"
        table.add_row(_network(row), row.dataset, paper, ours, gap, str(row.n or ""), row.verdict)
    _print(table)


def print_controls(rows: "Sequence[controls.Row]") -> None:
    """The ReLU networks that cost as much as the Q-Metric one, beside it and its ReLU twin."""
    table = _table(["network", "matched in"], ["width", "parameters, M", "multiply-adds, M", "accuracy, %", "seeds"])
    for row in rows:
        counts = [f"{row.parameters / 1e6:.2f}", f"{row.multiply_adds / 1e6:.1f}"]
        accuracy = _spread(row.mean, row.std)
        matched = (row.matched or "").replace("_", "-")
        table.add_row(_network(row), matched, f"{row.width:g}", *counts, accuracy, str(row.n or ""))
    _print(table)


def print_changes(rows: "Sequence[changes.Row]") -> None:
    """What each change came to with either activation, all scored on images of one kind."""
    table = _table(["change", "network"], ["accuracy, %", "seeds"])
    for row in rows:
        accuracy = _spread(row.mean, row.std)
        table.add_row(row.change.replace("-", " "), _network(row), accuracy, str(row.n or ""))
    _print(table)
    print(f"On {rows[0].dataset}; epochs: {rows[0].epochs}; scored on {rows[0].scored_on}.")


def print_robustness(rows: "Sequence[tables.Row]") -> None:
    """Fooling rate and accuracy under attack, by network, attack and strength; a radius in both units."""
    from detrame.experiments.robustness.tables import measured_on

    printed = any(row.paper is not None for row in rows)
    headings = [*["paper, %"] * printed, "fooled, %", "seeds", "accuracy, %", "clean, %", "images"]
    table = _table(["network", "data", "attack", "strength"], headings)
    for row in rows:
        published = [_spread(row.paper, row.paper_std)] if printed else []
        ours = _spread(row.mean, row.std)
        figures = [*published, ours, str(row.n), f"{row.accuracy:.2f}", f"{row.clean:.2f}", f"{row.images:,}"]
        table.add_row(row.label, row.dataset, row.attack, row.strength, *figures)
    _print(table)
    print(f"{measured_on(rows)}.")


def tell_begun(network: "Network", attack: str) -> None:
    """That an attack on a network begins, which may now take minutes."""
    print(f"{attack} on {network.label} ...", file=sys.stderr, flush=True)


def tell_measured(measured: "Measured") -> None:
    """That an attack on a network is over, where several follow one another and each takes its time."""
    print(f"{measured.label} on {measured.dataset}, {measured.attack}: {measured.seconds:.1f} s", flush=True)


def print_checks(measured: "Iterable[Measured]") -> None:
    """What the checks on hidden gradients say of each network that was checked, and each of them below it."""
    from detrame.robustness.trust import verdict

    for one in measured:
        if one.checks:
            found = [f"  {check}" for check in one.checks]
            print("\n".join([f"{one.label} on {one.dataset}: {verdict(one.checks, one.settings.images)}", *found]))


def print_ddl(rows: "Sequence[ddl.Row]") -> None:
    """The methods in one shape: accuracy and seconds per image, the paper's and ours, and where ours were measured."""
    from detrame.experiments import ddl, paper

    def seconds(figure: float | None) -> str:
        return "" if figure is None else f"{figure:.3g}"

    accuracies = ["\nepochs", "parameters\nM", "accuracy\npaper, %", "\nours, %", "\nseeds"]
    times_an_image = ["train\npaper, s", "\nours, s", "test\npaper, s", "\nours, s"]
    table = _table(["\nnetwork", "\ndata"], [*accuracies, *times_an_image])
    for row in rows:
        times = row.paper_train_s_per_image, row.train_s_per_image, row.paper_test_s_per_image, row.test_s_per_image
        table.add_row(
            _network(row),
            row.dataset,
            str(row.epochs) if row.n else "",
            "" if row.parameters is None else f"{row.parameters / 1e6:.2f}",
            "" if row.paper is None else f"{row.paper:.2f}",
            _spread(row.mean, row.std),
            str(row.n or ""),
            *map(seconds, times),
        )
    _print(table)
    print(f"The paper's accuracies are those after {ddl.PAPER_EPOCHS} epochs.")
    print(f"Seconds are for one image; for training, over {ddl.PAPER_EPOCHS} epochs, extrapolated from those run.")
    claim = paper.claims()["ddl_test_speed"]
    said = f"the paper says {claim['printed']} on CIFAR-10; its table, for 12 layers, gives {claim['own_tables']}"
    for dataset, ratio in ddl.coding_time_ratios(rows).items():
        print(f"On {dataset}, DDL takes {ratio:.3g} times as long as Q-Metric for a test image; {said}.")
    _print_hardware(rows)


def print_depth(rows: "Sequence[depth.Row]") -> None:
    """Accuracy by depth, a column for each method."""
    from detrame.experiments.report.groups import NAMES

    cells = {(row.depth, row.activation): row for row in rows}
    activations = list(dict.fromkeys(row.activation for row in rows))
    table = _table(["layers"], [f"{NAMES[activation]}, %" for activation in activations])
    for depth in dict.fromkeys(row.depth for row in rows):
        here = [cells[depth, activation] for activation in activations]
        table.add_row(str(depth), *[_spread(row.mean, row.std) for row in here])
    _print(table)
    row = rows[0]
    print(f"On {row.dataset}; epochs: {row.epochs}; width: {row.width:.3g} of the published.")
    _print_hardware(rows)


def _print_hardware(rows: "Sequence[ddl.Row | depth.Row]") -> None:
    for dataset, hardware in dict.fromkeys((row.dataset, row.hardware) for row in rows if row.hardware):
        print(f"On {dataset}, measured on {hardware}.")


def _spread(mean: float | None, std: float | None) -> str:
    from detrame.experiments.spread import plus_minus

    return plus_minus(mean, std)


def _network(row: "Summary | accuracy.Row | changes.Row | controls.Row | ddl.Row | timing.Row") -> str:
    from detrame.training.recipe import iterates

    return f"{row.model} {row.activation}" + (f" T={row.iterations}" if iterates(row.activation) else "")


def print_parameters(rows: "Sequence[parameters.Row]") -> None:
    """Parameters of the paper's networks, in millions, beside the few counts that it prints."""
    table = _table(["network", "data"], ["parameters, M", "paper, M"])
    for row in rows:
        paper = "" if row.paper is None else f"{row.paper / 1e6:.1f}"
        table.add_row(f"{row.model} {row.activation}", row.dataset, f"{row.parameters / 1e6:.2f}", paper)
    _print(table)


def print_steps(networks: "Sequence[Steps]") -> None:
    """The training step of each network: time, speed, and the ratio of Q-Metric to ReLU."""
    speeds = ["step,\nms", "\nimages/s", "over\nplain", "over\nresearch", "\nTFLOP/s", "of\nceiling", "memory,\nMiB"]
    over_relu = [f"Q/ReLU\n{of}" for of in ("ours", "plain", "paper", "ops")]
    table = _table(["\nnetwork"], [*speeds, *over_relu])
    for one in networks:
        ratios = [one.ratio, one.plain_ratio, one.paper_ratio, one.operations_ratio]
        for name, figures, told in (("relu", one.relu, []), ("qmetric", one.qmetric, ratios)):
            table.add_row(
                f"{one.model} {name}",
                f"{figures.step_ms:.3f}",
                f"{figures.images_per_s:,.0f}",
                f"{figures.plain_speedup:.2f}",
                f"{figures.research_speedup:.1f}",
                f"{figures.tflops:.3g}",
                f"{figures.ceiling_share:.0%}",
                "" if figures.peak_mib is None else f"{figures.peak_mib:,.0f}",
                *[f"{ratio:.2f}" for ratio in told],
            )
    _print(table)


def print_timing(rows: "Sequence[timing.Row]") -> None:
    """The paper's time table: its figures on a V100, and ours."""
    from detrame.experiments.reproduction.wording import times_measured_on, training_times

    times = ["training, s\npaper", "\nours", "test, us\npaper", "\nours", "step,\nms", "plain,\nms"]
    over_relu = [f"Q/ReLU\n{of}" for of in ("paper", "ours", "operations")]
    table = _table(["\nnetwork"], [*times, *over_relu])

    def told(value: float | None, digits: int, unit: float = 1.0) -> str:
        return "" if value is None else f"{value / unit:,.{digits}f}"

    for row in rows:
        qmetric = row.activation == "qmetric"
        ratios = [told(r, 2) if qmetric else "" for r in (row.paper_ratio, row.ratio, row.operations_ratio)]
        table.add_row(
            _network(row),
            told(row.paper_train_s, 0),
            told(row.train_s, 0),
            told(row.paper_test_s_per_image, 0, 1e-6),
            told(row.test_s_per_image, 1, 1e-6),
            told(row.step_ms, 3),
            told(row.plain_ms, 3),
            *ratios,
        )
    _print(table)
    if measured := times_measured_on(rows):
        batch = next(row.batch for row in rows if row.batch is not None)
        print(f"ours: {measured}, batch {batch}; the paper's: a V100, batch 128")
        print(training_times(rows))
    else:
        print("ours: nothing measured yet; `detrame reproduce timing` measures it")


def _table(words: Iterable[str], figures: Iterable[str]) -> Table:
    """An empty table with these headings: of columns of words, then of columns of figures."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in words:
        table.add_column(heading, no_wrap=True)
    for heading in figures:
        table.add_column(heading, justify="right")
    return table


def _print(table: Table) -> None:
    # A pipe has no width of its own: do not fold rows that a script may want to read. Where a terminal is so narrow
    # that figures would be cut, let it fold the rows itself.
    terminal, wide = Console(), Console(width=200)
    cut = any("…" in segment.text for segment in terminal.render(table))
    (terminal if sys.stdout.isatty() and not cut else wide).print(table)


@contextmanager
def epochs_shown(total: int, *, quiet: bool, tensorboard: bool = False) -> "Iterator[OnEpoch]":
    """What training calls after each epoch: a progress bar on a terminal, a line elsewhere, silence for scripts."""
    from detrame.experiments.tensorboard import events

    with _shown(total, quiet=quiet) as show, events(tensorboard) as record:

        def on_epoch(run: "Run", epoch: "Epoch") -> None:
            show(run, epoch)
            record(run, epoch)

        yield on_epoch


@contextmanager
def _shown(total: int, *, quiet: bool) -> "Iterator[OnEpoch]":
    if quiet or not total:  # nothing is left to train of finished runs
        yield lambda run, epoch: None
    elif sys.stderr.isatty():
        from rich.live import Live
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = BarColumn(), MofNCompleteColumn(), TextColumn("epochs"), TimeElapsedColumn(), TimeRemainingColumn()
        bar, line = Progress(*columns), Text("the first epoch")  # a line of its own: 80 columns do not hold both
        task = bar.add_task("", total=total)
        with Live(Group(line, bar), console=Console(stderr=True)):

            def show(run: "Run", epoch: "Epoch") -> None:
                line.plain = _line(run, epoch)
                bar.advance(task)

            yield show
    else:
        yield lambda run, epoch: print(_line(run, epoch), file=sys.stderr, flush=True)


def _line(run: "Run", epoch: "Epoch") -> str:
    recipe, held_out = run.recipe, epoch.validation_accuracy
    # Who holds images out decides by them, and is not to be led by the test images.
    score = f"test accuracy {epoch.test_accuracy:.2f}%" if held_out is None else f"held-out accuracy {held_out:.2f}%"
    return (
        f"{recipe.model} {recipe.activation} seed {recipe.seed} epoch {epoch.epoch}/{recipe.epochs}: "
        f"loss {epoch.train_loss:.4f}, {score}"
    )
