"""Which steps of trainings side by side are taken as one."""

from collections.abc import Sequence

import pytest
import torch
from torch import nn

from detrame.training import rounds
from detrame.training.rounds import Rounds, Wanted
from detrame.training.step import Step, Taken


def step() -> Step:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    return Step(model, momentum=0.9, nesterov=False, weight_decay=0.0)


def wanted(taking: Step, size: int = 4) -> Wanted:
    return Wanted(taking, None, torch.rand(size, 3, 2, 2), torch.zeros(size, dtype=torch.long))


def test_on_the_cpu_every_step_is_taken_by_itself() -> None:
    steps, take = [step(), step()], Rounds()
    expected = [one.state()[0].clone() for one in steps]
    for _ in range(rounds._OFTEN + 1):
        taken = take([wanted(one, size) for one, size in zip(steps, (4, 7), strict=True)])
        assert [int(right) <= size for (_, right), size in zip(taken, (4, 7), strict=True)] == [True, True]
    for one, before in zip(steps, expected, strict=True):
        assert torch.equal(one.state()[0], before)  # at a learning rate of 0


def test_what_is_wanted_together_often_becomes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []

    def as_one(asked: Sequence[Wanted]) -> list[Taken]:
        together.append(len(asked))
        return [one.alone() for one in asked]

    monkeypatch.setattr(rounds, "_can_be_captured", lambda asked: True)
    monkeypatch.setattr(rounds, "_faster", lambda asked: as_one)
    steps, take = [step(), step(), step()], Rounds()
    for _ in range(rounds._OFTEN - 1):
        take([wanted(one) for one in steps])
    assert not together
    take([wanted(one) for one in steps])
    assert together == [3]
    take([wanted(one, size=2) for one in steps])  # the last batch of an epoch
    take([wanted(one) for one in steps[:2]])  # one has finished
    take([wanted(steps[0])])
    assert together == [3]
    take([wanted(one) for one in steps])
    assert together == [3, 3]


def test_eager_steps_stay_apart() -> None:
    assert not rounds._can_be_captured([wanted(step()), wanted(step())])
