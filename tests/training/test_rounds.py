"""Which steps of trainings side by side are taken as one."""

from collections.abc import Sequence

import pytest
import torch
from torch import nn

from detrame.training import rounds
from detrame.training.rounds import Rounds, Wanted
from detrame.training.step import Step, Taken


def step(seed: int = 0) -> Step:
    torch.manual_seed(seed)
    made = Step(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), momentum=0.9, nesterov=False, weight_decay=0.0)
    made.set_lr(0.1)
    return made


def wanted(taking: Step, size: int = 4) -> Wanted:
    return Wanted(taking, None, torch.ones(size, 3, 2, 2), torch.zeros(size, dtype=torch.long))


def test_on_the_cpu_every_step_is_taken_by_itself() -> None:
    steps, twins, take = [step(0), step(1)], [step(0), step(1)], Rounds()
    for _ in range(rounds._OFTEN + 1):
        taken = take([wanted(one, size) for one, size in zip(steps, (4, 7), strict=True)])
        alone = [wanted(twin, size).alone() for twin, size in zip(twins, (4, 7), strict=True)]
        assert taken == alone
        assert taken[0] != taken[1]
    for one, twin in zip(steps, twins, strict=True):
        assert torch.equal(one.state()[0], twin.state()[0])


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
    for _ in range(2 * rounds._OFTEN):
        take([wanted(one, size=2) for one in steps])  # the last batch of an epoch, which comes alone
        take([wanted(one) for one in steps[:2]])  # one is at another place
        take([wanted(steps[0])])
    assert together == [3]
    take([wanted(one) for one in steps])
    assert together == [3, 3]


def test_eager_steps_stay_apart() -> None:
    assert not rounds._can_be_captured([wanted(step()), wanted(step())])
