"""The command line: arguments in, calls out; the only place that prints.

Exit status: 0 done, 1 the work failed, 2 wrong arguments; either failure is one line on stderr, without a traceback.
"""

import ctypes
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from detrame.cli import attack, bench, data, reproduce, train
from detrame.cli.arguments import AsJson
from detrame.cli.show import print_document, print_models
from detrame.errors import Failure

NO_MEMORY = "out of memory", "not enough memory", "allocate memory"  # in PyTorch's own words, on a GPU and on the CPU
INTERRUPTED = 130  # the status of a program that Ctrl-C ended
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of malloc.h
app = typer.Typer(add_completion=False, rich_markup_mode=None)
for command in (train.train, train.compare, train.evaluate, attack.attack, train.report, bench.bench):
    app.command()(command)
app.add_typer(data.app, name="data")
app.add_typer(reproduce.app, name="reproduce")


def version(wanted: bool) -> None:
    """Print the version and stop, if that is wanted."""
    if wanted:
        from detrame import __version__

        print(f"detrame {__version__}")
        raise typer.Exit


@app.callback()
def detrame(
    version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Deep transform and metric learning networks."""


@app.command()
def models(
    iterations: Annotated[int, typer.Option(help="Iterations of each Q-Metric ReLU.")] = 2,
    num_classes: Annotated[int, typer.Option(help="Number of classes.")] = 10,
    in_channels: Annotated[int, typer.Option(help="Channels of an image.")] = 3,
    image_size: Annotated[int, typer.Option(help="Height and width of an image.")] = 32,
    as_json: AsJson = False,
) -> None:
    """List the networks, with parameters and multiply-adds per image.

    Example: detrame models --num-classes 100
    """
    from detrame.models import list_models

    infos = list_models(iterations=iterations, num_classes=num_classes, in_channels=in_channels, image_size=image_size)
    if as_json:
        costs = {name: {"relu": info.relu._asdict(), "qmetric": info.qmetric._asdict()} for name, info in infos.items()}
        print_document([{"model": name, **cost} for name, cost in costs.items()])
    else:
        print_models(infos)
        what = f"images {image_size}x{image_size}, {in_channels} channels, {num_classes} classes"
        print(f"Q-Metric ReLUs of {iterations} iterations; {what}")
        print("Also plainnetN and ddlN (exact dictionary layers), N = 3, 6, 9, 12 or more; activations lista and slstm")


def keep_freed_memory() -> None:
    """Have the C library keep what is freed for what comes next, until the program ends.

    glibc takes large blocks, as of the layers of a network, from the system anew each time and gives them back when
    freed. The system clears every page of them: on a CPU, that is up to half of the time of a training step.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, which has its own ways
        return
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, -1)


def wait_briefly() -> None:
    """Have a thread that waits for another give its core away soon, unless the environment says when.

    PyTorch's OpenMP lets it spin for milliseconds. Beside other programs, it then often holds the very core that the
    other thread needs, and small networks train a hundred times slower. OpenMP takes as few turns by itself where a
    program has more threads than cores, but cannot know of other programs. It reads this when PyTorch is loaded.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def main() -> None:
    """The `detrame` command."""
    keep_freed_memory()
    wait_briefly()
    with Path(os.devnull).open("w") as nowhere:
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere  # a shell may have closed one, as by >&-
        for stream in (sys.stdout, sys.stderr):  # a terminal that knows only ASCII gets a ? for a ±, not an error
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="replace")
        sys.exit(run(sys.argv[1:]))


def run(args: list[str]) -> int:
    """Run the command line on `args` and return its exit status."""
    if args in ([], ["data"], ["reproduce"]):  # which do nothing by themselves
        args = [*args, "--help"]
    try:
        status = typer.main.get_command(app).main(args, prog_name="detrame", standalone_mode=False)
    except typer.Exit as stop:
        status = stop.exit_code
    except (typer.Abort, KeyboardInterrupt):
        status = INTERRUPTED
    except ValueError as error:
        return _complain(error, 2)
    except (Failure, OSError) as error:
        return _complain(error, 1)
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of the argument parser
            return _complain(error.format_message(), 2)
        if any(words in str(error) for words in NO_MEMORY):
            return _complain("there is not enough memory for this: take a smaller batch, network or image", 1)
        raise
    if status == INTERRUPTED:  # which is also what typer makes of Ctrl-C, without a word
        return _complain("interrupted", INTERRUPTED)
    return status if isinstance(status, int) else 0


def _complain(what: object, status: int) -> int:
    message = " ".join(str(what).split())
    print(f"detrame: {message}", file=sys.stderr)
    return status
