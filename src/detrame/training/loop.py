"""Training as the paper states it, from a recipe into a run's folder, resumable to the same bits."""

import dataclasses
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import torch
from torch import Tensor

from detrame.data import Dataset, holdout
from detrame.data import load as load_dataset
from detrame.errors import Failure, check_count
from detrame.inference import Predictor, accuracy
from detrame.training import checkpoint
from detrame.training.checkpoint import Progress
from detrame.training.environment import describe
from detrame.training.files import append_text, sha256, sync, write_tensors, write_text
from detrame.training.recipe import Recipe
from detrame.training.rounds import Rounds, Wanted, queued_on
from detrame.training.runs import Epoch, Run, Scores, epoch_line, load, locked, note_environment, prepare, resuming
from detrame.training.step import Batch, Taken
from detrame.training.stopwatch import Stopwatch

OnEpoch = Callable[[Run, Epoch], None]
Result = TypeVar("Result")
# Yields a batch to have a step taken on it, and is sent what that came to; yields None to let others go first.
Work = Generator[Batch | None, Taken | None, Result]


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    device: str = "auto",
    checkpoint_every: int = 1,
    on_epoch: OnEpoch | None = None,
) -> Run:
    """Train a network by a recipe, into a new folder.

    Args:
        recipe: what to train, on what, and how.
        out: the run's folder; it must not exist, or be empty.
        device: "cpu", "cuda", "cuda:1", or "auto" for a GPU where there is one.
        checkpoint_every: number of epochs between checkpoints.
        on_epoch: called with the run and the epoch after each epoch.
    """
    return resume(plan(recipe, out, device=device).path, checkpoint_every=checkpoint_every, on_epoch=on_epoch)


def plan(recipe: Recipe, out: str | Path, *, device: str = "auto") -> Run:
    """Make the folder of a run, once the recipe has been found to work; `resume` then trains it."""
    if not isinstance(recipe, Recipe):
        example = "detrame.default_recipe('plainnet3', 'digits')"
        raise TypeError(f"expected a Recipe, as {example} makes, got {type(recipe).__name__}")
    chosen = pick_device(device)
    dataset = load_dataset(recipe.dataset, split_seed=recipe.split_seed)
    with torch.random.fork_rng([]):
        recipe.build(dataset)
    if recipe.crop_padding >= min(dataset.train.images.shape[2:]):
        size = "x".join(map(str, dataset.train.images.shape[2:]))
        raise ValueError(f"crop_padding must be less than the width of the images, {size}, got {recipe.crop_padding}")
    if recipe.validation >= len(dataset.train):
        raise ValueError(f"validation must leave some of {len(dataset.train)} training images, got {recipe.validation}")
    return prepare(Path(out), recipe, dataset, chosen)


def resume(path: str | Path, *, checkpoint_every: int = 1, on_epoch: OnEpoch | None = None) -> Run:
    """Continue a run from its last checkpoint until it is finished. A finished run is returned as it is.

    On the CPU, with the same number of threads, the weights are the same to the bit as those of an uninterrupted run.
    On SIGINT or SIGTERM, the step is finished and a checkpoint written; then a Failure says how to continue.
    """
    return resume_all([path], checkpoint_every=checkpoint_every, on_epoch=on_epoch)[0]


def resume_all(
    paths: Sequence[str | Path],
    *,
    checkpoint_every: int = 1,
    on_epoch: OnEpoch | None = None,
    minutes: float | None = None,
) -> list[Run]:
    """Train what each run still lacks: one after another on the CPU, side by side on a GPU, each on its own stream.

    After `minutes`, if given, it stops as a signal would make it: with a checkpoint, and a Failure that says so.
    """
    check_count("checkpoint_every", checkpoint_every)
    unfinished = [run for run in map(load, paths) if not run.finished]
    on_gpu = [run for run in unfinished if _device(run).type == "cuda"]
    deadline = math.inf if minutes is None else time.monotonic() + 60 * minutes
    groups = [group for group in (on_gpu, *([run] for run in unfinished if run not in on_gpu)) if group]
    failures: list[Failure] = []
    with _signals_noted(deadline) as stop:
        for number, group in enumerate(groups):
            if number and stop.is_set():  # after the last step of the group before
                failures.append(Stopped(f"stopped before {group[0].path}"))
            else:
                with _held(group):
                    failures += _trained(group, checkpoint_every, on_epoch, stop)
            for failure in failures:
                if isinstance(failure, Stopped):
                    raise Stopped(failure.where, f"continue with {resuming(_common_folder(paths))}")
    if failures:
        raise failures[0]
    return [load(path) for path in paths]


def _trained(
    group: Sequence[Run], checkpoint_every: int, on_epoch: OnEpoch | None, stop: threading.Event
) -> list[Failure]:
    """Train runs side by side; return the failures of those that failed, and train the others all the same."""
    trainings, failures = [], []
    for run in group:
        if run.finished:  # as another process may have made it while we waited
            continue
        try:
            trainings.append(_Training(run, checkpoint_every, on_epoch, stop))
        except Failure as failure:
            failures.append(failure)
    for training in trainings:
        training.progress.together = max(training.progress.together, len(trainings))
    return failures + _side_by_side(trainings)


class Stopped(Failure):
    """Training was told to stop, and did, with a checkpoint: where, and what to do to go on."""

    def __init__(self, where: str, again: str = "") -> None:
        super().__init__(f"{where}: {again}" if again else where)
        self.where = where


def _common_folder(paths: Sequence[str | Path]) -> str:
    """The folder that holds all of them: absolute if one of them is, since the two kinds have nothing in common."""
    absolute = any(Path(path).is_absolute() for path in paths)
    return os.path.commonpath([Path(path).absolute() if absolute else path for path in paths]) or "."


def _device(run: Run) -> torch.device:
    device = run.environment["device"]
    try:
        return torch.device(pick_device(device))
    except ValueError:
        raise Failure(
            f"{run.path} was begun on {device}, which is not here: continue it on a machine that has it"
        ) from None


@contextmanager
def _held(runs: Sequence[Run]) -> Iterator[None]:
    """Hold the folders of some runs, and give the random state back afterwards."""
    with ExitStack() as held:
        for run in runs:
            try:
                held.enter_context(locked(run.path))
            except OSError as error:
                again = "make it writable, or resume a copy of it"
                raise Failure(f"cannot write into {run.path} ({error.strerror}): {again}") from error
        held.enter_context(torch.random.fork_rng({_device(run) for run in runs if _device(run).type == "cuda"}))
        yield


def _side_by_side(trainings: "Sequence[_Training]") -> list[Failure]:
    """Take one step of each training in turn until all are done; return the failures of those that failed."""
    working = {training: training.work() for training in trainings}
    take, failures, taken = Rounds(), [], dict[_Training, Taken]()
    while working:
        wanted: dict[_Training, Wanted] = {}
        for training, steps in list(working.items()):
            try:
                with queued_on(training.stream):
                    batch = steps.send(taken.get(training))
            except StopIteration:
                del working[training]
            except Failure as failure:
                failures.append(failure)
                del working[training]
            else:
                if batch is not None:
                    wanted[training] = Wanted(training.step, training.stream, *batch)
        taken = dict(zip(wanted, take(list(wanted.values())), strict=True))
    return failures


def pick_device(name: str) -> str:
    """The device a name stands for, "auto" resolved; a ValueError if it is not one of this machine's."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError as error:
        raise ValueError(f"unknown device {name!r}: choose auto, cpu or cuda") from error
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"unknown device {name!r}: choose auto, cpu or cuda")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r} asked for, but PyTorch sees no CUDA device here: choose cpu")
    if kind == "cuda" and (torch.device(name).index or 0) >= (count := torch.cuda.device_count()):
        raise ValueError(f"device {name!r} asked for, but PyTorch sees {count} here, and counts from 0")
    return name


@dataclasses.dataclass
class _Done:
    """Steps that were taken, or queued: what they came to, on the device, and their time."""

    stopwatch: Stopwatch
    steps: list[Taken] = dataclasses.field(default_factory=list)


class _Training:
    """A run under way: network, batches and progress."""

    def __init__(
        self,
        run: Run,
        checkpoint_every: int,
        on_epoch: OnEpoch | None,
        stop: threading.Event,
    ) -> None:
        self.run, self.recipe, self.device = run, run.recipe, _device(run)
        self.checkpoint_every, self.on_epoch, self.stop = checkpoint_every, on_epoch, stop
        self.stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None  # type: ignore[no-untyped-call]
        with queued_on(self.stream):
            self._build(run.dataset())

    def _build(self, dataset: Dataset) -> None:
        recipe, device = self.recipe, self.device
        self.step = recipe.step(dataset, device)
        self.predict = Predictor(self.step.model)
        train, self.held_out = dataset.train, [dataset.test.to(device)]
        if recipe.validation:
            train, validation = holdout(dataset.train, recipe.validation, seed=recipe.seed)
            self.held_out.append(validation.to(device))
        self.batches = recipe.batches(train.to(device), dataset)
        self.images = len(train)
        self.progress = self._restored()
        done = None if self.progress == Progress() else self.progress.epoch
        note_environment(self.run, describe(dataset, self.run.environment["device"]), done)

    def _restored(self) -> Progress:
        """The progress of the last checkpoint, or none; lines of epochs that will be done again are dropped."""
        path = self.run.path / "checkpoint.safetensors"
        progress = checkpoint.restore(path, self.step, self.recipe) if path.exists() else Progress()
        metrics = self.run.path / "metrics.jsonl"
        lines = metrics.read_text(errors="replace").splitlines(keepends=True) if metrics.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        if len(whole) < progress.epoch:
            raise Failure(f"{metrics} lacks epochs that {path} has already trained: delete both to start the run again")
        write_text(metrics, "".join(whole[: progress.epoch]))
        _ = Run(self.run.path).history  # damage to what is kept is told now, and not when all is trained
        return progress

    def work(self) -> "Work[None]":
        """Ask for every step that is left, batch by batch, and leave a finished run."""
        while self.progress.epoch < self.recipe.epochs:
            done = yield from self._steps()
            logits = [self.predict(split.images) for split in self.held_out]
            # On a GPU all this is only queued. Before anyone waits for it, those who train beside queue theirs.
            yield None
            self._read(done)
            epoch = self._close_epoch(logits)
            append_text(self.run.path / "metrics.jsonl", epoch_line(epoch))
            if epoch.epoch % self.checkpoint_every == 0 or epoch.epoch == self.recipe.epochs:
                self._checkpoint()
            if self.on_epoch is not None:
                self.on_epoch(self.run, epoch)
        self._leave_result()

    def _steps(self) -> "Work[_Done]":
        """The steps of the current epoch that are left."""
        progress = self.progress
        self.step.set_lr(self.recipe.lr_at(progress.epoch))
        done = _Done(Stopwatch(self.device))
        for batch in self.batches.epoch(progress.epoch, start=progress.step, as_float=False):
            taken = yield batch
            assert taken is not None, "a batch is answered by what its step came to"
            done.steps.append(taken)
            progress.step += 1
            if self.stop.is_set():
                break
        else:
            if progress.epoch + 1 < self.recipe.epochs:
                self.batches.prepare(progress.epoch + 1)  # the host is ahead of the device, and has the time
        done.stopwatch.stop()
        if self.stop.is_set():
            self._read(done)
            self._checkpoint()
            raise Stopped(f"stopped in epoch {progress.epoch + 1}, after step {progress.step}, of {self.run.path}")
        return done

    def _read(self, done: "_Done") -> None:
        """Wait for the steps taken: one transfer an epoch, until which the host has not waited for the device."""
        if done.steps:
            losses, right = zip(*done.steps, strict=True)
            self.progress.losses += torch.stack(losses).tolist()
            self.progress.correct += int(torch.stack(right).sum())
        self.progress.seconds += done.stopwatch.seconds()
        self._check_losses()

    def _check_losses(self) -> None:
        for step, loss in enumerate(self.progress.losses, start=1):
            if not math.isfinite(loss):
                cause = (
                    "a network without normalisation needs a smaller learning rate"
                    if self.recipe.norm is None
                    else "the learning rate is probably too high"
                )
                lr = self.recipe.lr_at(self.progress.epoch)
                smaller = min(lr / 10, 0.1)  # a tenth of an absurd one is as absurd
                raise Failure(
                    f"the loss became {loss} in epoch {self.progress.epoch + 1}, step {step}, of {self.run.path}: "
                    f"{cause} (it is {lr:g}); start again with a smaller one, such as --set lr={smaller:g}"
                )

    def _close_epoch(self, logits: Sequence[Tensor]) -> Epoch:
        progress = self.progress
        scores = [accuracy(out, split.labels) for out, split in zip(logits, self.held_out, strict=True)]
        epoch = Epoch(
            epoch=progress.epoch + 1,
            lr=self.recipe.lr_at(progress.epoch),
            train_loss=sum(progress.losses) / len(progress.losses),
            train_accuracy=100 * progress.correct / self.images,
            test_accuracy=scores[0],
            validation_accuracy=scores[1] if self.recipe.validation else None,
            seconds=progress.seconds,
        )
        self.progress = Progress(epoch=progress.epoch + 1, seconds=progress.seconds, together=progress.together)
        return epoch

    def _checkpoint(self) -> None:
        sync(self.run.path / "metrics.jsonl")  # which must not lack epochs that the checkpoint has behind it
        checkpoint.save(self.run.path / "checkpoint.safetensors", self.step, self.progress, self.recipe)

    def _leave_result(self) -> None:
        """Weights first, result last: the result is what makes a run finished."""
        history = Run(self.run.path).history
        last, best = history[-1], max(history, key=lambda epoch: epoch.test_accuracy)
        scores = Scores(
            last=last.test_accuracy,
            best=best.test_accuracy,
            best_epoch=best.epoch,
            validation=last.validation_accuracy,
            parameters=sum(p.numel() for p in self.step.model.parameters()),
            seconds=last.seconds,
            together=self.progress.together,
        )
        metadata = {"recipe": self.recipe.to_json(), "scores": json.dumps(dataclasses.asdict(scores))}
        weights = self.run.path / "weights.safetensors"
        write_tensors(weights, self.step.model.state_dict(), metadata)
        whole = dataclasses.replace(scores, weights=sha256(weights))
        write_text(self.run.path / "result.json", json.dumps(dataclasses.asdict(whole), indent=2) + "\n")
        (self.run.path / "checkpoint.safetensors").unlink()


@contextmanager
def _signals_noted(deadline: float) -> Iterator[threading.Event]:
    """An event that SIGINT, SIGTERM or the deadline sets; a second signal does what it always does."""
    stop = threading.Event()
    with ExitStack() as undo:
        if deadline < math.inf:
            timer = threading.Timer(max(0, deadline - time.monotonic()), stop.set)
            timer.start()
            undo.callback(timer.cancel)
        if threading.current_thread() is threading.main_thread():  # only the main thread may handle signals
            for number in (signal.SIGINT, signal.SIGTERM):
                undo.callback(signal.signal, number, signal.getsignal(number))
                signal.signal(number, _noting(stop, signal.getsignal(number)))
        yield stop


def _noting(stop: threading.Event, before: Any) -> Callable[[int, FrameType | None], None]:
    def note(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before)

    return note
