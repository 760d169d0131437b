# %% [markdown]
# # DeTraMe the scikit-learn way
# `DeTraMeClassifier` in a grid search on handwritten digits, beside scikit-learn's own dictionary learning with
# logistic regression, and the library's other single-layer methods. Open this file as a notebook (VS Code, Spyder, or
# Jupytext), or run it: `python docs/examples/estimator.py`. It prints what it measures, as it comes, on your machine.

# %%
import time
import warnings

from sklearn.datasets import load_digits
from sklearn.decomposition import DictionaryLearning
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import detrame
from detrame.estimators import AnalysisClassifier, SynthesisClassifier, TaskDrivenClassifier

warnings.simplefilter("ignore", ConvergenceWarning)  # the budgets below are small, so that this runs in seconds

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)


def report(name, search):
    """Fit, and print the accuracy on the test digits with the seconds of the fit and of the test."""
    start = time.perf_counter()
    search.fit(X_train, y_train)
    fitted = time.perf_counter()
    accuracy = search.score(X_test, y_test)
    tested = time.perf_counter()
    print(f"{name:45} {accuracy:8.2%} {fitted - start:8.2f} s {tested - fitted:8.3f} s  {search.best_params_}")
    return search


# %% [markdown]
# ## Two grid searches
# The same pipeline and the same folds. In each line stand the accuracy, the seconds of the search (two folds for each
# candidate, and one fit on all training digits), the seconds to code and classify the test digits, and the choice.

# %%
# PyTorch loads parts of itself when it first trains, which is no part of the figures.
detrame.DeTraMeClassifier(max_iter=1).fit(X_train[:100], y_train[:100])

print(f"{'':45} {'accuracy':>8} {'search':>10} {'test':>10}")
deep = report(
    "DeTraMe",
    GridSearchCV(
        make_pipeline(MinMaxScaler(), detrame.DeTraMeClassifier((64,), max_iter=30, random_state=0)),
        {"detrameclassifier__iterations": [1, 2]},
        cv=2,
    ),
)
dictionary = DictionaryLearning(64, max_iter=3, fit_algorithm="cd", transform_algorithm="lasso_cd", random_state=0)
report(
    "scikit-learn: dictionary, logistic regression",
    GridSearchCV(
        make_pipeline(MinMaxScaler(), dictionary, LogisticRegression(max_iter=1000)),
        {"dictionarylearning__alpha": [0.3, 1.0]},
        cv=2,
    ),
)

# %% [markdown]
# ## The other single layers
# Synthesis and analysis dictionaries are learned without the labels; a task-driven one with them. Each takes a linear
# classifier whose loss is the cross-entropy, least squares or the hinge.

# %%
losses = ["cross_entropy", "least_squares", "hinge"]
for name, estimator in [
    ("synthesis", SynthesisClassifier(64, sparsity=0.3, max_iter=1, random_state=0)),
    ("analysis", AnalysisClassifier(64, sparsity=0.03, random_state=0)),
    ("task-driven", TaskDrivenClassifier(64, sparsity=0.3, max_iter=4, learning_rate=0.03, random_state=0)),
]:
    step = type(estimator).__name__.lower()
    report(name, GridSearchCV(make_pipeline(MinMaxScaler(), estimator), {f"{step}__loss": losses}, cv=2))

# %% [markdown]
# ## The codes
# `transform` gives the sparse codes, so that the classifier can be a step of a pipeline too.

# %%
codes = deep.best_estimator_.transform(X_test)
print(f"\nDeTraMe's codes of the test digits: {codes.shape}, {(codes == 0).mean():.0%} of them zero")
