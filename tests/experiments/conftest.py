"""Small real runs, trained once a session."""

from pathlib import Path

import pytest

from detrame.training import Recipe, Run, train

RECIPE = Recipe("plainnet3", "digits", width=0.1, epochs=4, batch_size=128, lr=0.05, lr_milestones=(3,))


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Run]]:
    """Two seeds of ReLU and of Q-Metric, and one run of Q-Metric with more iterations."""
    folder = tmp_path_factory.mktemp("runs")

    def group(name: str, seeds: int, recipe: Recipe) -> list[Run]:
        return [train(recipe.replace(seed=s, split_seed=s), folder / f"{name}{s}", device="cpu") for s in range(seeds)]

    return {
        "relu": group("relu", 2, RECIPE.replace(activation="relu")),
        "qmetric": group("qmetric", 2, RECIPE),
        "more": group("more", 1, RECIPE.replace(iterations=3, epochs=1)),
    }


@pytest.fixture(scope="session")
def page(runs: dict[str, list[Run]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the normal case: ReLU against Q-Metric."""
    from detrame.experiments.report import write

    return write([*runs["qmetric"], *runs["relu"]], tmp_path_factory.mktemp("report") / "new" / "page.html")
