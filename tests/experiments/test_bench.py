"""`detrame bench`, on networks and efforts so small that a CPU does them in a moment."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor, nn

from detrame import cli
from detrame.activations import q_metric_relus
from detrame.data import Split
from detrame.errors import Failure
from detrame.experiments import bench
from detrame.experiments.bench import accuracy, ceilings, clock, epochs, research, setting, steps, store
from detrame.experiments.bench.clock import Action, Effort
from detrame.experiments.bench.setting import CPU_BATCH, Setting
from detrame.experiments.recipes import RECIPES
from detrame.models import cost
from detrame.models.blocks import Normalise
from detrame.training.step import Step
from tests.conftest import problem
from tests.experiments.conftest import TINY, measured

CPU = torch.device("cpu")


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[[], None]]:
    """Actions that take the seconds they are told, one call after another, on a clock of their own."""
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)

    def action(*seconds: float) -> Callable[[], None]:
        calls = 0

        def act() -> None:
            nonlocal now, calls
            now += seconds[min(calls, len(seconds) - 1)]
            calls += 1

        return act

    return action


def test_the_median_of_groups_taken_in_turn(takes: Callable[..., Callable[[], None]]) -> None:
    order: list[str] = []

    def noted(name: str, action: Callable[[], None]) -> Callable[[], None]:
        def act() -> None:
            order.append(name)
            action()

        return act

    slow_start = takes(9.0, 0.002, 0.002, 0.002, 0.002, 5.0, 0.002)  # one call in the second group is an outlier
    effort = replace(TINY, groups=3, group_s=0.004)
    times = clock.milliseconds({"a": noted("a", slow_start), "b": noted("b", takes(0.004))}, CPU, effort)
    assert times == {"a": pytest.approx(2.0), "b": pytest.approx(4.0)}
    assert "".join(order) == "aaa" + "bbb" + "aab" * 3


def test_the_best_of_some_calls_after_one_to_warm_up(takes: Callable[..., Callable[[], None]]) -> None:
    assert clock.best_seconds(takes(1.0, 3.0, 2.0, 4.0), CPU) == 2.0


def test_the_literal_equation_is_the_q_metric_relu() -> None:
    z, coupling, gain, threshold = problem("conv2d")
    module = research.Literal(3, 3, 4, dtype=torch.float64)
    module.load_state_dict({"coupling": coupling, "gain": gain, "threshold": threshold})
    torch.testing.assert_close(module(z), super(research.Literal, module).forward(z))


@pytest.mark.parametrize("activation", ["relu", "qmetric"])
def test_research_code_starts_from_the_same_weights(small: Setting, activation: str) -> None:
    recipe = small.step_recipe("resnet8", activation)
    torch.manual_seed(0)
    theirs = research.network(recipe, small.random_images)
    torch.manual_seed(0)
    ours = recipe.build(small.random_images)
    torch.testing.assert_close(theirs.state_dict(), ours.state_dict(), rtol=0, atol=0)
    assert [m.iterations for m in q_metric_relus(theirs)] == [m.iterations for m in q_metric_relus(ours)]


def test_research_code_takes_all_of_the_recipe(small: Setting) -> None:
    """As that of SVHN, which does not normalise."""
    recipe = small.step_recipe("plainnet3", "qmetric").replace(
        normalise=False, norm=None, last_activation=True, nesterov=True
    )
    theirs, ours = research.network(recipe, small.random_images), recipe.build(small.random_images)
    assert len(q_metric_relus(theirs)) == len(q_metric_relus(ours)) == 3
    for network in (theirs, ours):
        assert not any(isinstance(module, nn.BatchNorm2d | Normalise) for module in network.modules())
    assert research.optimizer(theirs, recipe).defaults["nesterov"]


def test_research_code_learns(small: Setting) -> None:
    recipe = small.step_recipe("resnet8", "qmetric").replace(lr=0.1)
    model = research.network(recipe, small.random_images)
    batch = small.random_images.train[:16]
    losses = [*research.steps(model, research.optimizer(model, recipe), [(batch.images / 255, batch.labels)] * 10)]
    assert losses[-1] < 0.8 * losses[0]
    assert all((m.coupling[:, :, 1, 1].diagonal() == 0).all() for m in q_metric_relus(model))


def test_research_code_crops_and_mirrors_each_image_by_itself() -> None:
    image = torch.arange(16, dtype=torch.uint8).reshape(1, 4, 4)
    served = research.Augmented(Split(image[None], torch.tensor([7])), 1)
    padded = torch.nn.functional.pad(image / 255, (1,) * 4)
    crops = [padded[:, i : i + 4, j : j + 4] for i in range(3) for j in range(3)]
    possible = {tuple(crop.flatten().tolist()) for one in crops for crop in (one, one.flip(2))}
    seen = {tuple(served[0][0].flatten().tolist()) for _ in range(400)}
    assert seen == possible
    assert served[0][1] == 7


def test_research_code_reads_its_images_through_workers(small: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(research, "WORKERS", 1)
    recipe = small.step_recipe("resnet8", "relu")
    assert research.milliseconds(recipe, small.random_images, CPU, seconds=0.0) > 0


def test_the_ceiling_of_a_cpu_is_that_of_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theirs is another library than that of matrix products: beside these, steps came to 141% on an AMD EPYC."""
    taken: dict[str, Action] = {}

    def two_ms(actions: dict[str, Action], device: torch.device, effort: Effort) -> dict[str, float]:
        taken.update(actions)
        return dict.fromkeys(actions, 2.0)

    monkeypatch.setattr(ceilings, "milliseconds", two_ms)
    found = ceilings.Ceilings.measured(CPU, setting.QUICK)
    out = taken["product"]()
    assert isinstance(out, Tensor)
    images, channels, *size = out.shape
    layer = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    assert found.tflops == pytest.approx(2 * images * cost(layer, (channels, *size)).multiply_adds / 2e-3 / 1e12)
    assert found.gb_per_s == pytest.approx(2 * 4 * 2**23 / 2e-3 / 1e9)


def test_steps_follow_from_their_definitions(small: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "milliseconds", lambda actions, device, effort: {"fast": 2.0, "plain": 3.0})
    monkeypatch.setattr(research, "milliseconds", lambda *args, **options: 10.0)
    found = steps.measure_steps("resnet8", small)
    recipe = small.step_recipe("resnet8", "qmetric")
    multiply_adds = cost(recipe.build(small.random_images), (3, 32, 32)).multiply_adds
    qmetric = found.qmetric
    assert (qmetric.iterations, qmetric.multiply_adds) == (3, multiply_adds)
    assert (qmetric.plain_speedup, qmetric.research_speedup, qmetric.images_per_s) == (1.5, 5.0, 4000.0)
    assert qmetric.tflops == pytest.approx(6 * multiply_adds * 8 / 2e-3 / 1e12)
    assert qmetric.ceiling_share == pytest.approx(qmetric.tflops / found.ceilings.tflops)
    assert (found.ratio, found.plain_ratio) == (1.0, 1.0)
    assert found.operations_ratio == pytest.approx(multiply_adds / found.relu.multiply_adds)
    assert found.paper_ratio == pytest.approx(3962.09 / 3152.10)
    assert found.environment["hardware"] == small.hardware
    assert found.environment["data"]["source"].startswith("random pixels")


def test_an_epoch_beside_its_steps(small: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "milliseconds", lambda actions, device, effort: {"128": 4.0, "3": 1.0})
    found = epochs.measure_epochs("resnet8", replace(small, batch=128))
    for one in (found.relu, found.qmetric):
        assert one.steps == 8  # 899 images: seven batches and three images more
        assert one.steps_s == pytest.approx(7 * 4e-3 + 1e-3)
        assert one.overhead == pytest.approx(one.epoch_s / one.steps_s - 1)
        assert 0 < one.epoch_s < 10
    assert found.environment["data"]["digest"] == small.dataset.digest
    assert "of its steps" in found.line()


def test_an_epoch_of_whole_batches_has_no_rest(small: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "milliseconds", lambda actions, device, effort: dict.fromkeys(actions, 5.0))
    found = epochs.measure_epochs("resnet8", replace(small, batch=899))
    assert found.relu.steps == 1
    assert found.relu.steps_s == pytest.approx(5e-3)


@pytest.mark.slow
def test_seeds_at_once(small: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.perf_counter", time.process_time)  # which does not run while other work has the processor
    found = epochs.measure_seeds("resnet8", replace(small, batch=128))
    for one in (found.relu, found.qmetric):
        assert one.share == pytest.approx(one.together_s / (2 * one.alone_s))
        assert one.images_per_s == pytest.approx(2 * 899 / one.together_s)
        assert one.research_speedup == pytest.approx(one.images_per_s / one.research_images_per_s)
        assert one.share > 0.5  # a CPU takes them one after another: about 1
        assert one.one_batch_share > 0.5  # nor does a larger batch leave less to do
    assert "2 seeds at once take" in found.line()


def test_the_images_of_all_seeds_as_one_batch(small: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[str, int] = {}

    def by_size(actions: dict[str, Action], device: torch.device, effort: Effort) -> dict[str, float]:
        for name, action in actions.items():
            with monkeypatch.context() as patch:
                patch.setattr(Step, "take", lambda step, images, labels, of=name: sizes.setdefault(of, len(images)))
                action()
        return {"one": 2.0, "all": 3.0}

    monkeypatch.setattr(epochs, "milliseconds", by_size)
    where = replace(small, batch=600)  # of 899 images: two seeds' take some of them twice
    assert epochs._one_batch_share(where.recipe("resnet8", "relu"), where) == pytest.approx(3 / 4)
    assert sizes == {"one": 600, "all": 1200}


@pytest.mark.parametrize(
    ("intervals", "covered"),
    [
        ([(0.0, 2.0), (5.0, 6.0)], 3.0),  # one after another
        ([(0.0, 2.0), (0.5, 2.5)], 2.5),  # side by side
        ([(0.0, 9.0), (1.0, 2.0), (8.0, 9.0)], 9.0),
        ([], 0.0),
    ],
)
def test_the_time_that_runs_cover(intervals: list[tuple[float, float]], covered: float) -> None:
    assert epochs._covered(intervals) == covered


@pytest.mark.slow
def test_our_training_is_as_good_as_research_code_on_the_same_batches(
    small: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RECIPES["small"], "lr", 0.01)  # with small steps, differences of rounding stay small
    found = accuracy.measure_accuracy("resnet8", replace(small, batch=64))
    assert len(found.ours) == len(found.float32) == 2
    assert found.ours == pytest.approx(found.float32, abs=1)  # the same steps, but for rounding
    assert min(found.ours) > 15  # they have learned something
    assert found.difference == pytest.approx((sum(found.ours) - sum(found.float32)) / 2)
    assert found.unharmed == (abs(found.difference) <= found.allowed)
    assert found.allowed >= 0.3
    assert "harmed" in found.line()
    assert len(found.disagreement) == 2
    assert all(
        abs(one - other) - 1e-9 <= apart < 100
        for one, other, apart in zip(found.ours, found.float32, found.disagreement, strict=True)
    )


@pytest.mark.parametrize(
    ("what", "on_gpu", "on_cpu"),
    [("steps", 10, 2), ("epoch", 10, 2), ("seeds", 3, 2), ("accuracy", 1, 2)],
)
def test_which_networks_are_measured(what: str, on_gpu: int, on_cpu: int) -> None:
    gpu = Setting("cuda", 128, "cifar10", TINY)
    assert len(bench.networks(what, gpu)) == on_gpu
    assert len(bench.networks(what, replace(gpu, device="cpu"))) == on_cpu
    assert bench.networks(what, gpu, ["resnet110"]) == ["resnet110"]


def test_what_is_stored_comes_back(tmp_path: Path) -> None:
    folder = store.folder(tmp_path, "NVIDIA H200 (x)", 128)
    assert folder == tmp_path / "timing" / "nvidia-h200-x" / "batch128"
    written = [measured("resnet8"), measured("plainnet3")]
    for one in written:
        store.write("steps", one, folder)
    assert store.read_steps(folder) == written[::-1]  # in the order of the paper's table
    assert store.folders(tmp_path) == [folder]
    for plot in ("steps.svg", "ratios.svg"):
        names = [element.text for element in ElementTree.parse(folder / plot).iter("{http://www.w3.org/2000/svg}text")]
        assert {"plainnet3", "resnet8"} <= set(names)
    path = folder / "steps" / "resnet8.json"
    whole = json.loads(path.read_text())
    for damaged, reason in (
        ({}, "it lacks 'model'"),
        (whole | {"model": "resnet20"}, "it is of 'resnet20'"),
        (whole | {"environment": None}, "it has other fields"),
        (whole | {"environment": {"device": "cuda"}}, "it lacks 'hardware'"),
        (whole | {"ratio": "x"}, "ratio: 'x'"),
        (whole | {"relu": None}, "it has other fields"),
        (whole | {"relu": whole["relu"] | {"step_ms": math.nan}}, "step_ms: nan"),
    ):
        path.write_text(json.dumps(damaged))
        with pytest.raises(Failure, match=rf"resnet8.json is not a measurement \({reason}\)"):
            store.read_steps(folder)
    path.write_text(json.dumps(whole))
    path.with_name("resnet9.json").write_text(json.dumps(whole))
    with pytest.raises(Failure, match="unknown model of the paper 'resnet9'"):
        store.read_steps(folder)


def test_bench_stores_each_network_and_prints_a_table(small: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["bench", "--models", "resnet8,resnet20", "--device", "cpu", "--batch", "4"]) == 0
    captured = capsys.readouterr()
    assert "resnet20 qmetric" in captured.out
    assert "s  resnet8: ReLU" in captured.err
    kept = store.folder(Path("results"), small.hardware, 4)
    assert [one.model for one in store.read_steps(kept)] == ["resnet8", "resnet20"]


def test_a_quick_bench_stores_nothing(small: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["bench", "--quick", "--models", "resnet8", "--device", "cpu", "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert document["relu"]["step_ms"] > 0
    assert document["qmetric"]["peak_mib"] is None
    assert document["batch"] == CPU_BATCH
    assert not Path("results").exists()


def test_the_other_measurements_are_stored_beside(
    small: Setting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = epochs.measure_epochs("resnet8", replace(small, batch=899))
    monkeypatch.setitem(bench.MEASUREMENTS, "epoch", bench.Measurement(lambda model, where: made))
    assert cli.run(["bench", "epoch", "--models", "resnet8", "--device", "cpu", "--batch", "899"]) == 0
    assert "an epoch takes" in capsys.readouterr().err
    path = store.folder(Path("results"), small.hardware, 899) / "epoch" / "resnet8.json"
    assert json.loads(path.read_text()) == json.loads(json.dumps(asdict(made)))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["stpes"], "unknown measurement 'stpes': did you mean 'steps'"),
        (["--models", "plainet3"], "unknown model of the paper 'plainet3': did you mean 'plainnet3'"),
        (["--batch", "0"], "--batch must be at least 1, got 0"),
        (["--device", "tpu"], "unknown device 'tpu'"),
        (["epoch", "--dataset", "digit"], "did you mean 'digits'"),
        (["--dataset", "digits"], "steps are measured on random images: leave --dataset out"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], complaint: str, small: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["bench", *arguments]) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1


def test_a_folder_that_takes_no_results_is_found_before_measuring(
    small: Setting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measurement = bench.Measurement(lambda model, where: pytest.fail("it measured"))
    monkeypatch.setitem(bench.MEASUREMENTS, "steps", measurement)
    assert cli.run(["bench", "--device", "cpu", "--results", "/proc/results"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("detrame: cannot write /proc/results/timing/")
    assert captured.err.count("\n") == 1


def test_a_recipe_for_steps_is_the_paper_s(small: Setting) -> None:
    recipe = small.step_recipe("plainnet3", "qmetric")
    assert (recipe.iterations, recipe.batch_size, recipe.crop_padding) == (5, 8, 4)
