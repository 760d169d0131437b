"""The example in docs/ runs, and the page about the estimators tells the truth."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

import detrame.estimators

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(DOCS / "examples" / "estimator.py"))
    rows = re.findall(r"^(\S.*?) +([\d.]+)% +[\d.]+ s +[\d.]+ s  \{", capsys.readouterr().out, flags=re.MULTILINE)
    assert [name for name, _ in rows] == [
        "DeTraMe",
        "scikit-learn: dictionary, logistic regression",
        "synthesis",
        "analysis",
        "task-driven",
    ]
    assert all(85 < float(accuracy) < 100 for _, accuracy in rows)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_page_names_every_estimator_and_its_python_runs() -> None:
    page = (DOCS / "estimators.md").read_text()
    for name in detrame.estimators.__all__:
        assert f"`{name}`" in page
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    names: dict[str, np.ndarray] = {}
    exec(compile(block, "estimators.md", "exec"), names)
    assert names["codes"].min() >= 0
    assert "(examples/estimator.py)" in page
