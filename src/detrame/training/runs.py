"""One folder per run: what was asked, where it ran, how it went, and the weights.

recipe.json        the resolved recipe
environment.json   versions, hardware, commit, data, and what of it changed where the run was resumed; this format
metrics.jsonl      one line per epoch
checkpoint.safetensors   the state to resume from, while the run is not finished
weights.safetensors, result.json   when it is
"""

import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

from torch import nn

from detrame.data import CATALOGUE, Dataset, cache
from detrame.data import load as load_dataset
from detrame.errors import Failure, check_utf8, why_not
from detrame.training.environment import describe, sittings
from detrame.training.files import read_tensors, sha256, write_text
from detrame.training.recipe import Recipe

FORMAT = 1


def resuming(path: str | Path) -> str:
    """What to type to go on with a run or a folder of runs, whose name may have spaces."""
    return f"`detrame train --resume {quote(str(path))}`"


@dataclass(frozen=True)
class Epoch:
    """How one epoch went; accuracies in percent, epochs counted from 1, seconds of training since the run began."""

    epoch: int
    lr: float
    train_loss: float
    train_accuracy: float
    test_accuracy: float
    validation_accuracy: float | None
    seconds: float


@dataclass(frozen=True)
class Scores:
    """What a finished run reports; the last epoch's accuracy is the headline, the best one stands beside it.

    The seconds are those of a clock on the wall: with `together` above 1, as many runs, or fewer, shared the device.
    `weights` is the SHA-256 of the file of weights, by which damage to it is known.
    """

    last: float
    best: float
    best_epoch: int
    validation: float | None
    parameters: int
    seconds: float
    together: int = 1
    weights: str | None = None

    def __post_init__(self) -> None:
        for name, most in (("last", 100), ("best", 100), ("seconds", 1e9)):  # thirty years
            score = getattr(self, name)
            if not isinstance(score, int | float) or not 0 <= score <= most:
                raise ValueError(f"{score!r} is not a score")
        for name in ("parameters", "together"):
            if type(count := getattr(self, name)) is not int or count < 1:
                raise ValueError(f"{name}: {count!r}")


@dataclass(frozen=True)
class Run:
    """A run's folder, read."""

    path: Path

    @cached_property
    def recipe(self) -> Recipe:
        """What was asked for."""
        return Recipe.read(self.path / "recipe.json")

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Versions, hardware, commit and data of the run."""
        recipe = quote(str(self.path / "recipe.json"))
        return _read_json(self.path / "environment.json", f"begin again by `detrame train --recipe {recipe}`")

    @cached_property
    def history(self) -> list[Epoch]:
        """The epochs so far."""
        path = self.path / "metrics.jsonl"
        try:
            text = path.read_text() if path.exists() else ""
            lines = text[: text.rfind("\n") + 1].splitlines()  # a line without its end was being written
            return [Epoch(**json.loads(line)) for line in lines]
        except (ValueError, TypeError) as error:
            raise Failure(f"{path} is damaged ({error}): {self.again}") from error

    @property
    def again(self) -> str:
        """What to do about a damaged run."""
        last = self.path / ("result.json" if self.finished else "checkpoint.safetensors")
        return f"delete {last}, then {resuming(self.path)} trains it again"

    @property
    def finished(self) -> bool:
        """Whether the run has all its epochs behind it."""
        return (self.path / "result.json").exists()

    @cached_property
    def scores(self) -> Scores:
        """What the run achieved; a Failure if it is not finished."""
        if not self.finished:
            again = f"continue it with {resuming(self.path)}, or move it away"
            raise Failure(f"{self.path} is not finished: {again}")
        path = self.path / "result.json"
        try:
            return Scores(**_read_json(path, self.again))
        except (TypeError, ValueError) as error:
            raise Failure(f"{path} is not a result ({why_not(error)}): {self.again}") from error

    def dataset(self) -> Dataset:
        """The data set the run was trained on; a Failure if it is not here, or its name stands for other images."""
        name = self.recipe.dataset
        if name not in CATALOGUE and name not in cache.names():
            raise Failure(f"{self.path} needs the data set {name}: type `detrame data get {name} --from FOLDER`")
        dataset = load_dataset(self.recipe.dataset, split_seed=self.recipe.split_seed)
        if self.environment["data"]["digest"] != dataset.digest:
            raise Failure(f"{self.path} was begun on other images than {dataset.name} now holds: get those again")
        return dataset

    @cached_property
    def model(self) -> nn.Module:
        """The trained network, on the CPU, in eval mode; it takes pixels in [0, 1]."""
        path, digest = self.path / "weights.safetensors", self.scores.weights
        model = self.recipe.build(self.dataset())
        weights, _ = read_tensors(path, remedy=self.again)
        if digest is not None and digest != sha256(path):
            raise Failure(f"{path} is damaged, or of another run: {self.again}")
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise Failure(f"{path} does not fit {self.path / 'recipe.json'}: {error}") from error
        return model.eval()


def load(path: str | Path) -> Run:
    """Load the run in a folder: its recipe, scores, history, and its trained network.

    If the folder holds no run, or one that another version of detrame wrote, a Failure says what is wrong.
    """
    path = Path(path)
    _check_readable(path)
    if not (path / "recipe.json").is_file():
        inside = sorted(path.glob("*/recipe.json"))
        hint = f"; did you mean {inside[0].parent}?" if inside else ""
        raise Failure(f"{path} is not a run: it has no recipe.json{hint}")
    run = Run(path)
    if run.environment.get("format") != FORMAT:
        found = run.environment.get("format")
        raise Failure(f"{path} was written by another version of detrame (format {found}, this one reads {FORMAT})")
    return run


def find(path: str | Path) -> list[Run]:
    """The run in a folder, or the runs in the folders below it; a ValueError if there is none."""
    path = Path(path)
    if not path.is_dir():
        raise ValueError(f"{path} is not a folder: runs are made by `detrame train` and `detrame compare`")
    _check_readable(path)
    if (path / "recipe.json").is_file():
        return [load(path)]
    # By what it has come to as well, so that a run which has lost its recipe is not left out in silence.
    files = ("recipe.json", "metrics.jsonl", "checkpoint.safetensors", "result.json")
    folders = {file.parent for name in files for file in path.rglob(name)}
    if not folders:
        raise ValueError(f"there is no run in {path}: runs are made by `detrame train` and `detrame compare`")
    return [load(folder) for folder in sorted(folders)]


def _check_readable(folder: Path) -> None:
    """A Failure if the user lacks the permission, which is no damage to a run: training it again would not mend it."""
    files = "recipe.json", "environment.json", "metrics.jsonl", "weights.safetensors", "result.json"
    for path in (folder, *(folder / name for name in files)):
        if path.exists() and not os.access(path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK):
            raise Failure(
                f"you have no permission to read {path}: change that with chmod, or copy the run as its owner"
            )


def prepare(path: Path, recipe: Recipe, dataset: Dataset, device: str) -> Run:
    """Make the folder of a run that is still to be trained."""
    check_utf8(path, "choose another --out")
    if path.exists() and not path.is_dir():
        raise Failure(f"{path} is a file: choose another --out")
    environment = {"format": FORMAT, **describe(dataset, device)}
    try:
        path.mkdir(parents=True, exist_ok=True)
        with locked(path):  # against another process that finds it empty too
            if {file.name for file in path.iterdir()} - {".lock", "environment.json"}:  # which is all if half made
                hint = f"choose another --out, or continue it with {resuming(path)}, in Python detrame.resume"
                raise Failure(f"{path} is not empty: {hint}")
            write_text(path / "environment.json", json.dumps(environment, indent=2) + "\n")
            write_text(path / "recipe.json", recipe.to_json())
    except OSError as error:
        raise Failure(f"cannot make the folder {path} ({error.strerror}): choose another --out") from error
    return Run(path)


def note_environment(run: Run, now: dict[str, Any], epoch: int | None) -> None:
    """Keep true in what environment a run is trained: as it begins or, with what changed, goes on after `epoch`."""
    if epoch is None:  # what was noted of an earlier beginning is of no step of this one
        environment = {name: value for name, value in run.environment.items() if name != "resumed"} | now
    else:
        before = sittings(run.environment)[-1]
        changed = {name: value for name, value in now.items() if value != before.get(name)}
        if not changed:
            return
        environment = run.environment | {"resumed": [*run.environment.get("resumed", []), {"epoch": epoch, **changed}]}
    write_text(run.path / "environment.json", json.dumps(environment, indent=2) + "\n")


def epoch_line(epoch: Epoch) -> str:
    """An epoch as its line in metrics.jsonl."""
    return json.dumps(dataclasses.asdict(epoch)) + "\n"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a run's folder, so that two processes never train into it; a kill lets it go."""
    with (path / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Failure(f"{path} is being trained by another process: wait for it, or stop it") from error
        for half in path.glob(".*.part"):  # written by a process that was killed
            half.unlink()
        yield


def _read_json(path: Path, remedy: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Failure(f"{path} cannot be read ({error}): {remedy}") from error
    if not isinstance(value, dict):
        raise Failure(f"{path} does not hold a JSON object: {remedy}")
    return value
