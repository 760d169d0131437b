"""What `detrame bench` measures, on a GPU: `pytest -m cuda`."""

from dataclasses import replace

import pytest
import torch

from detrame.experiments.bench import setting_on
from detrame.experiments.bench.epochs import measure_epochs, measure_seeds
from detrame.experiments.bench.steps import measure_steps

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_steps_are_replays_and_leave_the_device_busy() -> None:
    where = setting_on("cuda", quick=True)
    found = measure_steps("resnet8", where)
    for one in (found.relu, found.qmetric):
        assert 0 < one.step_ms < one.research_ms
        assert one.peak_mib is not None
        assert one.peak_mib > 10
        assert 0 < one.ceiling_share < 1
    assert found.ceilings.tflops > 1
    assert found.environment["device"] == "cuda"


def test_epochs_and_seeds_by_the_training_code() -> None:
    where = replace(setting_on("cuda", quick=True, dataset="digits"), batch=64)
    epochs = measure_epochs("resnet8", where)
    assert epochs.qmetric.epoch_s > 0
    assert epochs.qmetric.steps == 15
    assert measure_seeds("resnet8", where).qmetric.share < 1.5
