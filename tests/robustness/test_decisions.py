"""Decisions as in float32 proper, by way of something faster and less exact."""

from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from detrame.inference import predict
from detrame.robustness import Decisions, decisions
from tests.robustness import Linear, pictures


def test_without_anything_faster_it_is_the_exact_prediction() -> None:
    model, images = Linear(), pictures(20)
    said = Decisions(model, images)
    assert torch.equal(said.logits, predict(model, images, exact=True))
    assert torch.equal(said(images.flip(3)), predict(model, images.flip(3), exact=True))


def test_what_rounding_could_have_changed_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images, others = Linear(), pictures(20), pictures(400).flip(3)
    exact = predict(model, others, exact=True)
    two = exact.topk(2, dim=1).values
    error = (two[:, 0] - two[:, 1]).quantile(0.2).item() / (2 * decisions.SLACK)  # a fifth of the images are close

    def rounded(network: nn.Module, shown: Tensor) -> Tensor:
        """Off by the error where it was measured, and by a few times as much, against the winner, elsewhere."""
        logits = predict(network, shown, exact=True)
        if len(shown) == len(images):
            return logits + error
        winner = torch.nn.functional.one_hot(logits.argmax(1), logits.shape[1])
        return logits + 0.9 * decisions.SLACK * error * (1 - 2 * winner)

    monkeypatch.setattr(decisions, "_rounds", lambda device: True)
    monkeypatch.setattr(decisions, "_in_tf32", rounded)
    said = Decisions(model, images)
    assert (rounded(model, others).argmax(1) != exact.argmax(1)).any(), "the rounding alone would have changed some"
    with patch.object(decisions, "predict", side_effect=predict) as asked:
        found = said(others)
    assert torch.equal(found.argmax(1), exact.argmax(1))
    ((_, again), _) = asked.call_args
    assert 0 < len(again) < 0.6 * len(others)
