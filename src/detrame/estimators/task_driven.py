"""Task-driven dictionary learning (Mairal, Bach, Ponce): dictionary and classifier learned together, from labels."""

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from torch import Tensor, nn

from detrame.dictionary import DictionaryLinear
from detrame.estimators.fitting import all_or_nothing
from detrame.estimators.losses import LOSSES, Loss, is_probabilistic
from detrame.estimators.network import NetworkClassifier


class TaskDrivenClassifier(NetworkClassifier):
    r"""Task-driven dictionary learning: the classifier's loss is minimised over the dictionary too.

    .. math:: \min_{|D_i| \le 1, C, c} \tfrac1N \sum_j g\bigl(y_j, C a_j + c\bigr), \quad
              a_j = \arg\min_{a \ge 0} \tfrac12 |x_j - D a|^2 + \lambda |a|_1 + \tfrac{\alpha}{2} |a|^2

    The codes are exact and their gradient is that of the optimality condition on the active set, see
    :class:`detrame.dictionary.DictionaryLinear`. The first atoms are samples at random, scaled to norm 1.

    Args:
        n_components: k, the number of atoms; the number of features unless given.
        sparsity: lambda.
        damping: alpha, above 0 so that the code is unique.
        loss: g, "cross_entropy", "least_squares" or "hinge".
        learning_rate, weight_decay: of AdamW; only the classifier C is decayed.
        batch_size, max_iter, tol, n_iter_no_change, random_state, device, verbose: as in
            :class:`detrame.DeTraMeClassifier`.

    Attributes:
        network_, classes_, n_features_in_, n_iter_, loss_curve_: see :class:`NetworkClassifier`.
        dictionary_: ``(k, features)``, an atom a row.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "sparsity": [Interval(Real, 0, None, closed="left")],
        "damping": [Interval(Real, 0, None, closed="neither")],
        "loss": [StrOptions(set(LOSSES))],
        **NetworkClassifier._parameter_constraints,
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        sparsity: float = 0.1,
        damping: float = 0.1,
        loss: str = "cross_entropy",
        learning_rate: float = 0.003,
        weight_decay: float = 0.01,
        batch_size: int | str = "auto",
        max_iter: int = 100,
        tol: float = 1e-4,
        n_iter_no_change: int = 10,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.sparsity = sparsity
        self.damping = damping
        self.loss = loss
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from X ``(N, features)`` with labels y ``(N,)``."""
        with all_or_nothing(self):
            return self._fit(X, y)

    @property
    def dictionary_(self) -> np.ndarray:
        """The learned dictionary ``(k, features)``, an atom a row."""
        return self.network_[0].dictionary.detach().T.cpu().numpy()

    @available_if(is_probabilistic)
    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """The probability of each class, ``(N, K)``: the softmax of the scores; with the cross-entropy only."""
        return super().predict_proba(X)

    def _build(self, x: Tensor, classes: int) -> nn.Module:
        atoms = self.n_components or x.shape[1]
        layer = _UnitAtoms(x.shape[1], atoms, sparsity=self.sparsity, damping=self.damping)
        layer.start_from(x)
        return nn.Sequential(layer, nn.Linear(atoms, classes))

    def _loss(self) -> Loss:
        return LOSSES[self.loss]


class _UnitAtoms(DictionaryLinear):
    """A dictionary layer whose atoms stay in the unit ball, which decay would only shrink further."""

    @torch.no_grad()
    def start_from(self, x: Tensor) -> None:
        """Take random samples ``(N, m)`` as atoms."""
        self.dictionary.copy_(x[torch.randint(len(x), (self.dictionary.shape[1],))].T)
        self.dictionary.div_(self.dictionary.norm(dim=0).clamp_min(torch.finfo(self.dictionary.dtype).tiny))

    @torch.no_grad()
    def project_(self) -> None:
        super().project_()
        self.dictionary.div_(self.dictionary.norm(dim=0).clamp_min(1))

    def undecayed(self) -> list[nn.Parameter]:
        return list(self.parameters())
