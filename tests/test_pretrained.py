"""Trained weights inside the package."""

from pathlib import Path

import pytest
import torch

import detrame
from detrame.data import cache, load
from detrame.errors import Failure
from detrame.experiments.weights import export
from detrame.inference import accuracy, predict
from detrame.models import pretrained, pretrained_names, read_pretrained
from detrame.training import train
from tests.training import tiny


@pytest.fixture
def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of weights with one small run in it."""
    run = train(tiny(epochs=1, activation="relu"), tmp_path / "run", device="cpu")
    path = export(run, tmp_path / "weights")
    monkeypatch.setattr(pretrained, "folder", lambda: tmp_path / "weights")
    return path


def test_exported_weights_are_the_run_s_in_half_precision(exported: Path) -> None:
    run = detrame.load(exported.parents[1] / "run")
    net = detrame.create_model("plainnet3", activation="relu", pretrained="digits")
    assert not net.training
    x = torch.rand(4, 1, 8, 8)
    torch.testing.assert_close(net(x), run.model(x), rtol=0.02, atol=0.02)
    _, metadata = read_pretrained("plainnet3", "relu", "digits")
    assert metadata["scores"]["last"] == run.scores.last
    assert metadata["recipe"]["width"] == run.recipe.width
    assert exported.stat().st_size < (run.path / "weights.safetensors").stat().st_size


def test_a_damaged_file_is_refused(exported: Path) -> None:
    content = bytearray(exported.read_bytes())
    content[-1] ^= 1
    exported.write_bytes(content)
    with pytest.raises(Failure, match="does not match its checksum: install detrame again"):
        detrame.create_model("plainnet3", activation="relu", pretrained="digits")


def test_networks_there_are_no_weights_of(exported: Path) -> None:
    for name, dataset in [("plainnet3", "digit"), ("plainnet6", "digits"), ("plainnet3", "plainnet3-relu-digits")]:
        with pytest.raises(ValueError, match=rf"no trained {name} relu on '{dataset}'; .* plainnet3 relu digits$"):
            detrame.create_model(name, activation="relu", pretrained=dataset)
    with pytest.raises(ValueError, match="an activation by name"):
        detrame.create_model("plainnet3", activation=lambda channels, kernel: torch.nn.ReLU(), pretrained="digits")


@pytest.mark.parametrize(
    ("option", "asked", "trained"),
    [
        ("iterations", 2, "3"),
        ("num_classes", 100, "10"),
        ("width", 0.5, "1.0"),
        ("norm", None, "'batch'"),
        ("mean", (0.5, 0.5, 0.5), r"\[0.49"),
        ("mean", 0.5, r"\[0.49"),
    ],
)
def test_an_option_that_contradicts_the_trained_network_is_refused(option: str, asked: object, trained: str) -> None:
    with pytest.raises(ValueError, match=f"^{option}=.* was asked, but the trained .* has {option}={trained}"):
        detrame.create_model("resnet8", pretrained="cifar10", **{option: asked})  # type: ignore[arg-type]


def test_options_that_agree_with_the_trained_network_are_taken() -> None:
    detrame.create_model("resnet8", iterations=3, num_classes=10, width=1, norm="batch", pretrained="cifar10")
    detrame.create_model("resnet8", activation="relu", iterations=5, pretrained="cifar10")  # ReLU has no iterations


@pytest.mark.parametrize("name", pretrained_names())
def test_the_package_s_networks_load(name: str) -> None:
    model, activation, dataset = name.split("-")
    net = detrame.create_model(model, activation=activation, pretrained=dataset)
    assert net(torch.rand(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.real_data
@pytest.mark.parametrize("name", [n for n in pretrained_names() if n.endswith("cifar10") and n.startswith("resnet8")])
def test_the_recorded_score_on_some_images(name: str) -> None:
    if "cifar10" not in cache.names():
        pytest.skip("CIFAR-10 is not on this machine: detrame data get cifar10")
    model, activation, dataset = name.split("-")
    test = load(dataset).test[slice(0, 10_000, 20)]
    net = detrame.create_model(model, activation=activation, pretrained=dataset)
    recorded = read_pretrained(model, activation, dataset)[1]["scores"]["last"]
    # 500 images: two standard errors of a share near 88% are 2.9 points.
    assert accuracy(predict(net, test.images), test.labels) == pytest.approx(recorded, abs=3.5)


def test_all_weights_together_stay_small() -> None:
    files = [entry for entry in pretrained.folder().iterdir() if entry.name.endswith(".safetensors")]
    assert sum(len(entry.read_bytes()) for entry in files) <= 12 * 2**20
