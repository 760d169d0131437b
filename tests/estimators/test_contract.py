"""scikit-learn's own checks of an estimator, in full, for every estimator of the library."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import check_param_validation, parametrize_with_checks

from detrame.estimators import AnalysisClassifier, DeTraMeClassifier, SynthesisClassifier, TaskDrivenClassifier

ROOT = Path(__file__).parents[2]

# As they come, but for those that solve a coding problem a sample, which are kept short.
ESTIMATORS = [
    DeTraMeClassifier(),
    AnalysisClassifier(),
    SynthesisClassifier(max_iter=2),
    TaskDrivenClassifier(max_iter=12, learning_rate=0.2),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(ESTIMATORS)  # type: ignore[untyped-decorator]
def test_scikit_learns_checks(estimator: BaseEstimator, check: Callable[[BaseEstimator], None]) -> None:
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_wrong_parameters_get_scikit_learns_message(estimator: Any) -> None:
    check_param_validation(type(estimator).__name__, estimator)


@pytest.mark.slow
def test_the_check_that_needs_its_own_interpreter() -> None:
    """The one check that skips above: SciPy reads this variable when it is first imported."""
    program = (
        "from sklearn.utils.estimator_checks import check_array_api_input\n"
        "from tests.estimators.test_contract import ESTIMATORS\n"
        "for estimator in ESTIMATORS:\n"
        "    check_array_api_input('', estimator, 'numpy', expect_only_array_outputs=False)\n"
    )
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    subprocess.run([sys.executable, "-c", program], env=environment, cwd=ROOT, check=True, timeout=120)
