"""The paper's two tables against deep dictionary learning: every method in one shape, its accuracy and its time."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from detrame.errors import unknown
from detrame.experiments import paper
from detrame.experiments.bench.clock import best_seconds
from detrame.experiments.recipes import default_recipe
from detrame.experiments.results import Result, by_recipe, hardware_of
from detrame.experiments.spread import Spread
from detrame.folding import fold
from detrame.inference import Predictor
from detrame.training import Recipe, Run, pick_device

TABLE = "ddl"
# Each a family of networks and its activation; LISTA and SLSTM the paper cites and does not run. They train in this
# order, by far the slowest last, so that a budget that is too small leaves out no more than that.
METHODS = {
    "relu": ("plainnet", "relu"),
    "lista": ("plainnet", "lista"),
    "slstm": ("plainnet", "slstm"),
    "qmetric": ("plainnet", "qmetric"),
    "ddl": ("ddl", "dictionary"),
}
DEPTH = 9
DATASETS = ("cifar10", "cifar100", "digits")
# A tenth of the paper's, for a budget of minutes; every row says its own.
EPOCHS = 20
PAPER_EPOCHS, PAPER_IMAGES = 200, 50_000
TIMED_IMAGES, REPEATS = 1000, 5


@dataclass(frozen=True)
class Row:
    """A method on a data set: the paper's figures and ours; None where there is none.

    Accuracies in percent. Test: seconds to code and classify one image, in batches. Training: seconds for one image as
    the paper counts them, over the 200 epochs of its run, whatever number of epochs ours were measured over.
    """

    model: str
    dataset: str
    activation: str
    iterations: int
    paper: float | None
    mean: float | None
    std: float | None
    n: int
    epochs: int
    parameters: int | None
    train_s_per_image: float | None
    test_s_per_image: float | None
    paper_train_s_per_image: float | None
    paper_test_s_per_image: float | None
    hardware: str | None


def method_recipe(method: str, depth: int, dataset: str, **changes: Any) -> Recipe:
    """The recipe of a method in the All-CNN shape of `depth` layers: the data set's, with `changes`."""
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    family, activation = METHODS[method]
    return default_recipe(f"{family}{depth}", dataset, activation=activation, **changes)


def recipe_of(method: str, dataset: str, *, epochs: int | None = None, seed: int = 0) -> Recipe:
    """The run of a method in this table, at a tenth of the paper's length or another; T is DeTraMe's for all."""
    if dataset not in DATASETS:
        raise unknown("data set of this table", dataset, DATASETS)
    iterations = paper.iterations(f"plainnet{DEPTH}", dataset) or 2
    epochs = EPOCHS if epochs is None else epochs
    return method_recipe(method, DEPTH, dataset, iterations=iterations, epochs=epochs, seed=seed)


def timing(run: Run) -> dict[str, float]:
    """Seconds that a finished run takes for one image: to train on it once, and to code and classify it.

    Both are the best of several (training: of the epochs), which what is done once (warming up, capturing a graph) and
    what else the machine does disturb the least.
    """
    dataset, device = run.dataset(), pick_device(run.environment["device"])
    ends = [0.0, *[epoch.seconds for epoch in run.history]]
    epoch = min(end - start for start, end in pairwise(ends))
    predict, images = Predictor(fold(run.model.to(device))), dataset.test.images[:TIMED_IMAGES].to(device)
    seconds = best_seconds(lambda: predict(images).cpu(), torch.device(device), times=REPEATS)
    return {
        "train_s_per_image_and_epoch": epoch / (len(dataset.train) - run.recipe.validation),
        "test_s_per_image": seconds / len(images),
    }


def rows(results: Sequence[Result], dataset: str, methods: Sequence[str], *, epochs: int | None = None) -> list[Row]:
    """A row for each method and number of epochs that was run, or for one number; without our figures if never run."""
    table = []
    for method in methods:
        run = {result.recipe.epochs for result in results if _is(result.recipe, method, dataset)}
        for length in sorted(run or {EPOCHS}) if epochs is None else [epochs]:
            recipe = recipe_of(method, dataset, epochs=length)
            table.append(_row(method, recipe, by_recipe(results, recipe)))
    return table


def _is(recipe: Recipe, method: str, dataset: str) -> bool:
    return recipe.dataset == dataset and recipe.seedless() == recipe_of(method, dataset, epochs=recipe.epochs)


def _row(method: str, recipe: Recipe, found: Sequence[Result]) -> Row:
    train = _mean(found, "train_s_per_image_and_epoch")
    paper_train, paper_test = _paper_times(method, recipe.dataset)
    return Row(
        model=recipe.model,
        dataset=recipe.dataset,
        activation=recipe.activation,
        iterations=recipe.iterations,
        paper=_paper_accuracy(method, recipe.dataset),
        **Spread.fields([result.scores.last for result in found]),
        epochs=recipe.epochs,
        parameters=found[0].scores.parameters if found else None,
        train_s_per_image=None if train is None else PAPER_EPOCHS * train,
        test_s_per_image=_mean(found, "test_s_per_image"),
        paper_train_s_per_image=paper_train,
        paper_test_s_per_image=paper_test,
        hardware=hardware_of(found),
    )


def _mean(found: Sequence[Result], name: str) -> float | None:
    return statistics.fmean(result.timing[name] for result in found) if found else None


def _paper_accuracy(method: str, dataset: str) -> float | None:
    printed = {"relu": "plainnet9", "ddl": "ddl9", "qmetric": "detrame9"}
    return paper.tables()["ddl_accuracy"][printed[method]].get(dataset) if method in printed else None


def _paper_times(method: str, dataset: str) -> tuple[float | None, float | None]:
    """Training and test, on CIFAR-10; DDL's are that method's own, on 28x28 images and on a basis it does not state."""
    if dataset == "cifar10" and method == "ddl":
        printed = paper.tables()["ddl_time"]["ddl"]
        return printed["train"], printed["test"]
    if dataset == "cifar10" and method in paper.COMPARED:
        printed = paper.tables()["time"]["plainnet9"]
        return printed[f"train_{method}"] / PAPER_IMAGES, printed[f"test_{method}"]
    return None, None


def coding_time_ratios(table: Sequence[Row]) -> dict[str, float]:
    """For each data set on which both have run, how many times DeTraMe's test time DDL takes."""
    seconds = {(row.dataset, row.activation): row.test_s_per_image for row in table if row.test_s_per_image}
    return {
        dataset: seconds[dataset, "dictionary"] / seconds[dataset, "qmetric"]
        for dataset in DATASETS
        if {(dataset, "dictionary"), (dataset, "qmetric")} <= set(seconds)
    }
