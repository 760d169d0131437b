"""The captured step, on a GPU: `pytest -m cuda`."""

import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import detrame
from detrame.errors import Failure
from detrame.training import Recipe, plan, resume_all, train
from detrame.training.rounds import Wanted, _faster, _Together
from detrame.training.step import Step, unchanged
from tests.training import tiny

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def steps(
    captured: bool, count: int, sizes: tuple[int, ...] = (32,), *, fused: bool = True
) -> tuple[dict[str, Tensor], list[float]]:
    """The weights and losses after `count` steps of a network without dropout."""
    torch.manual_seed(0)
    model = detrame.create_model("resnet8", iterations=3).cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    step = Step(model, momentum=0.9, nesterov=False, weight_decay=5e-4, fused=fused)
    assert (step._forward is not model) == fused  # or an error while tracing would look as if all were well
    generator = torch.Generator().manual_seed(1)
    losses = []
    for i in range(count):
        size = sizes[i % len(sizes)]
        images, labels = (
            torch.rand(size, 3, 16, 16, generator=generator),
            torch.randint(10, (size,), generator=generator),
        )
        step.set_lr(0.05 if i < count // 2 else 0.01)
        take: Any = step if captured else step.take
        losses.append(take(images.cuda(), labels.cuda())[0])
    return model.state_dict(), torch.stack(losses).tolist()


@pytest.mark.parametrize("sizes", [(32,), (32, 20)])
def test_captured_and_eager_give_the_same_weights_over_100_steps(sizes: tuple[int, ...]) -> None:
    eager, eager_losses = steps(False, 100, sizes)
    captured, captured_losses = steps(True, 100, sizes)
    assert captured_losses == pytest.approx(eager_losses, rel=0.02, abs=0.02)
    for name, tensor in eager.items():
        if tensor.is_floating_point():
            error = (captured[name] - tensor).norm() / tensor.norm().clamp_min(1e-3)
            assert error < 0.05, f"{name} differs by {error:.3g} of its norm"


def test_fused_and_plain_learn_alike() -> None:
    """In bfloat16 the two round differently, and weights drift apart: the first steps agree, and the level reached."""
    _, fused = steps(True, 60)
    _, plain = steps(True, 60, fused=False)
    assert fused[:5] == pytest.approx(plain[:5], rel=0.02)
    assert statistics.mean(fused[-20:]) == pytest.approx(statistics.mean(plain[-20:]), rel=0.1)


def test_8_bit_and_float_batches_are_told_apart() -> None:
    torch.manual_seed(0)
    model = detrame.create_model("resnet8", activation="relu").cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    step = Step(model, momentum=0.9, nesterov=False, weight_decay=0.0)
    images, labels = torch.randint(256, (16, 3, 16, 16), dtype=torch.uint8).cuda(), torch.arange(16).cuda() % 10
    losses = [step(batch, labels)[0].item() for batch in (images, images.float() / 255)]  # at a learning rate of 0
    assert losses[0] == pytest.approx(losses[1], rel=0.01)


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    run = plan(settled(0), tmp_path / "run", device="cuda")
    with pytest.raises(Failure, match="stopped in epoch"):
        resume_all([run.path], minutes=0)
    assert resume_all([run.path])[0].scores.last > 90


def three_together(way: type[_Together] | None) -> list[Tensor]:
    """The weights of three networks, one with dropout, after 30 rounds as one graph or apart."""
    names = ("resnet8", "plainnet3", "resnet8")
    torch.manual_seed(0)
    models = [
        detrame.create_model(name, width=0.5).cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for name in names
    ]
    asked = []
    for number, model in enumerate(models):
        step = Step(model, momentum=0.9, nesterov=False, weight_decay=5e-4)
        step.set_lr(0.02)
        images, labels = torch.rand(32 + number, 3, 32, 32).cuda(), torch.randint(10, (32 + number,)).cuda()
        asked.append(Wanted(step, torch.cuda.Stream(), images, labels))
        step.graph(images, labels)
    torch.cuda.synchronize()
    take = way(asked) if way else None
    for _ in range(30):
        _ = take(asked) if take else [one.alone() for one in asked]
    torch.cuda.synchronize()
    return [parameter.detach().clone() for model in models for parameter in model.parameters()]


def test_a_round_as_one_graph_is_the_same_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    apart, together = three_together(None), three_together(_Together)
    for first, second in zip(apart, together, strict=True):
        assert torch.equal(first, second)


def wants(name: str) -> Wanted:
    model = detrame.create_model(name, width=0.5).cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    step = Step(model, momentum=0.9, nesterov=False, weight_decay=5e-4)
    step.set_lr(0.1)
    images, labels = torch.rand(32, 3, 32, 32).cuda(), torch.randint(10, (32,)).cuda()
    step(images, labels)
    return Wanted(step, torch.cuda.Stream(), images, labels)


def test_measuring_a_round_leaves_no_trace() -> None:
    """Of two networks, one with dropout."""
    torch.manual_seed(0)
    asked = [wants(name) for name in ("resnet8", "plainnet3")]

    def state() -> list[Tensor]:
        randoms = [one.step.random.get_state() for one in asked if one.step.random is not None]
        assert len(randoms) == 2
        return [tensor.clone() for one in asked for tensor in one.step.state()] + [torch.cuda.get_rng_state(), *randoms]

    before = state()
    _faster(asked)
    for tensor, value in zip(state(), before, strict=True):
        assert torch.equal(tensor, value)


def after_rounds(seeds: tuple[int, ...], way: type[_Together] | None) -> list[dict[str, Tensor]]:
    """The weights of networks with dropout, one a seed, after 20 rounds as one graph or apart."""
    asked = []
    for seed in seeds:
        torch.manual_seed(seed)
        asked.append(wants("plainnet3"))
    torch.cuda.synchronize()
    take = way(asked) if way else None
    for _ in range(20):
        _ = take(asked) if take else [one.alone() for one in asked]
    torch.cuda.synchronize()
    return [{name: value.clone() for name, value in one.step.model.state_dict().items()} for one in asked]


@pytest.mark.parametrize("way", [None, _Together])
def test_dropout_beside_others_is_that_of_a_run_alone(
    way: type[_Together] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    alone = [after_rounds((seed,), None)[0] for seed in (0, 1)]
    for one, beside in zip(alone, after_rounds((0, 1), way), strict=True):
        for name, value in one.items():
            assert torch.equal(beside[name], value), name


def test_a_capture_that_runs_out_of_memory_falls_back_to_steps_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [wants(name) for name in ("resnet8", "resnet8", "resnet8")]
    take = asked[1].step.take

    def short_of_memory(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if torch.cuda.is_current_stream_capturing():
            raise torch.OutOfMemoryError("for a test")
        return take(images, labels)

    monkeypatch.setattr(asked[1].step, "take", short_of_memory)
    assert _faster(asked) is None
    assert all(torch.isfinite(one.alone()[0]) for one in asked)


def test_a_round_that_fails_leaves_no_trace() -> None:
    one = wants("resnet8")
    before = [tensor.clone() for tensor in one.step.state()]

    def fail() -> None:
        with unchanged([one.step]):
            one.alone()
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    for tensor, value in zip(one.step.state(), before, strict=True):
        assert torch.equal(tensor, value)


def test_graphs_that_are_replayed_at_once_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a workspace of its own for its products, the class layer's above all."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)

    def trained(wait: bool) -> list[Tensor]:
        torch.manual_seed(0)
        asked = [wants("wideresnet16_4") for _ in range(3)]
        for _ in range(200):
            for one in asked:
                one.alone()
                if wait:
                    torch.cuda.synchronize()
        torch.cuda.synchronize()
        return [tensor.clone() for one in asked for tensor in one.step.state()]

    for first, second in zip(trained(True), trained(False), strict=True):
        assert torch.equal(first, second)


def test_constraints_hold_after_captured_steps() -> None:
    weights, _ = steps(True, 20)
    couplings = [tensor for name, tensor in weights.items() if name.endswith("coupling")]
    assert couplings
    for coupling in couplings:
        assert (coupling[:, :, 1, 1].diagonal() == 0).all()
        assert (coupling != 0).any()


def settled(seed: int) -> Recipe:
    """Long enough that digits are learned whatever the draw of the dropout."""
    return tiny(epochs=16, width=0.3, batch_size=32, lr=0.1, lr_milestones=(10, 14), seed=seed)


def test_a_run_on_the_gpu_is_as_good_as_on_the_cpu(tmp_path: Path) -> None:
    gpu, cpu = (train(settled(0), tmp_path / device, device=device) for device in ("cuda", "cpu"))
    assert gpu.scores.last == pytest.approx(cpu.scores.last, abs=2)
    assert gpu.environment["hardware"] != cpu.environment["hardware"]


def test_runs_side_by_side_are_as_good_as_alone(tmp_path: Path) -> None:
    paths = [plan(settled(seed), tmp_path / f"together-{seed}", device="cuda").path for seed in range(3)]
    together = [run.scores.last for run in resume_all(paths)]
    alone = [train(settled(seed), tmp_path / f"alone-{seed}", device="cuda").scores.last for seed in range(3)]
    assert statistics.mean(together) == pytest.approx(statistics.mean(alone), abs=1)
