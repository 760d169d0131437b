"""The training loop of the estimators: weighted samples, whole or in batches, until the loss no longer falls.

:mod:`detrame.training` trains by a recipe into a folder, for the paper's tables; this trains on arrays, in memory.
"""

import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from detrame.activations import parameter_groups, project_
from detrame.estimators.losses import Loss
from detrame.inference import as_pixels, in_passes
from detrame.modes import evaluating

_SMALL = 256  # up to so many samples, "auto" takes them all in one step;
_BATCH = 128  # of more, so many
_LARGE = 1000  # rows of features that are looked at together, without training
_RISE = 1.0  # what no loss of classes rises by through noise alone
_REMEDY = "scale the input, for example with StandardScaler, or use a smaller learning_rate"


class Samples(NamedTuple):
    """Inputs ``(N, features)`` or ``(N, C, H, W)``, labels ``(N,)`` and weights ``(N,)`` on one device."""

    x: Tensor
    labels: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Loop:
    """How to train: AdamW, the projections after every step, and when to stop.

    Attributes:
        loss: of scores and labels, one number per sample.
        learning_rate, weight_decay: of AdamW; see :func:`detrame.parameter_groups` for what is not decayed.
        batch_size: samples a step, or "auto": all of up to 256 samples, otherwise 128.
        max_iter: the most epochs.
        tol, n_iter_no_change: stop after so many epochs in which the best loss (or, with samples held out, the best
            accuracy on them) has not improved by more than `tol`.
        verbose: whether to print a line per epoch.
    """

    loss: Loss
    learning_rate: float
    weight_decay: float
    batch_size: int | str
    max_iter: int
    tol: float
    n_iter_no_change: int
    verbose: bool

    def run(self, network: nn.Module, train: Samples, held: Samples | None = None) -> "History":
        """Train `network` in place; with samples `held` out, it ends with the weights that were best on them."""
        optimizer = torch.optim.AdamW(parameter_groups(network, self.weight_decay), lr=self.learning_rate)
        history, best, waited = History(), -math.inf, 0
        best_state: dict[str, Tensor] = {}
        for epoch in range(1, self.max_iter + 1):
            history.losses.append(self._epoch(network, optimizer, train))
            if held is not None:
                history.scores.append(_accuracy(network, held))
            if self.verbose:
                print(f"epoch {epoch}: {history.last()}")
            score = history.scores[-1] if held is not None else -history.losses[-1]
            waited = 0 if score > best + self.tol else waited + 1
            if held is not None and score > best:
                best_state = deepcopy(network.state_dict())
            best = max(best, score)
            history.converged = waited >= self.n_iter_no_change
            if history.converged:
                break
        if best_state:
            network.load_state_dict(best_state)
        return history

    def _epoch(self, network: nn.Module, optimizer: torch.optim.Optimizer, train: Samples) -> float:
        """One pass over the samples; its weighted mean loss."""
        network.train()
        total = torch.zeros((), dtype=torch.float64, device=train.weights.device)
        for batch in self._batches(train):
            optimizer.zero_grad()
            losses = self.loss(_forward(network, batch.x), batch.labels)
            loss = (batch.weights * losses).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            project_(network)
            total += loss.detach() * len(batch.labels)
        mean = total.item() / len(train.labels)
        if not math.isfinite(mean):
            raise ValueError(f"the loss became {mean}: {_REMEDY} than {self.learning_rate:g}")
        return mean

    def _batches(self, train: Samples) -> Iterator[Samples]:
        """All samples, or shuffled batches of as equal a size as can be: batch norm cannot train on a single one."""
        count = len(train.labels)
        size = (count if count <= _SMALL else _BATCH) if isinstance(self.batch_size, str) else int(self.batch_size)
        if size >= count:
            yield train
            return
        for some in torch.randperm(count).to(train.labels.device).tensor_split(math.ceil(count / size)):
            yield Samples(train.x[some], train.labels[some], train.weights[some])


@dataclass
class History:
    """What a training did: the mean loss and, with samples held out, the accuracy on them after each epoch."""

    losses: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    converged: bool = False

    @property
    def epochs(self) -> int:
        """How many epochs were done."""
        return len(self.losses)

    def problem(self) -> str | None:
        """Why the network may be no good, and what to do; None if it converged."""
        first, last = self.losses[0], self.losses[-1]
        if last > first + _RISE:  # and once it no longer falls, that looks like convergence
            return f"ended with a loss of {last:.3g}, after {first:.3g} in its first epoch: {_REMEDY}"
        if not self.converged:
            return f"reached max_iter={self.epochs} before it converged: raise it, or tol"
        return None

    def last(self) -> str:
        """The last epoch in words."""
        accuracy = f", validation accuracy {self.scores[-1]:.4f}" if self.scores else ""
        return f"loss {self.losses[-1]:.6f}{accuracy}"


@torch.no_grad()
def scores(network: nn.Module, x: Tensor) -> Tensor:
    """The network's scores ``(N, K)`` of features or images, in eval mode and in the precision of its weights."""
    parts = in_passes(x) if x.ndim == 4 else torch.split(x, _LARGE)
    with evaluating(network):
        return torch.cat([_forward(network, part) for part in parts])


def _forward(network: nn.Module, x: Tensor) -> Tensor:
    values = as_pixels(x) if x.ndim == 4 else x
    return network(values.to(next(network.parameters()).dtype))


def _accuracy(network: nn.Module, held: Samples) -> float:
    right = scores(network, held.x).argmax(1) == held.labels
    return ((held.weights * right).sum() / held.weights.sum()).item()
