"""What docs/convert.md shows is true: its Python runs, its figures are the network's, its message is convert's."""

import re
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import detrame
from detrame.activations import q_metric_relus

PAGE = (Path(__file__).parents[1] / "docs" / "convert.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    return [content for name, content in found if name == language]


def test_the_python_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(compile(block, "convert.md", "exec"), names)
    assert capsys.readouterr().out.strip() in PAGE
    before, after = (sum(p.numel() for p in names[net].parameters()) / 1e6 for net in ("trained", "net"))
    couplings = [act.coupling for act in q_metric_relus(names["net"])]
    pointwise = sum(coupling.shape[2:] == (1, 1) for coupling in couplings)
    assert f"{len(couplings)} couplings nearly double the parameters here, from {before:.1f}M to {after:.1f}M" in PAGE
    assert pointwise == 3


class Undecided(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x if x.mean() > 1 else self.conv(x).relu()


def test_a_relu_that_is_left_is_described_as_the_page_says() -> None:
    with pytest.warns(UserWarning, match="1 ReLU left unconverted"):
        net: Any = detrame.convert(Undecided(), torch.zeros(1, 3, 2, 2))
    assert [f"{left}\n" for left in net.unconverted] == blocks("")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripting_does_not_work_as_the_page_says() -> None:
    with pytest.raises(Exception, match="keyword-only"):
        torch.jit.script(detrame.QMetricReLU(3))


@pytest.mark.filterwarnings("ignore")  # of the exporter, about itself
def test_onnx_gives_the_same(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10), nn.ReLU()).eval()
    images = torch.randn(2, 3, 8, 8)
    converted = detrame.convert(net, images, iterations=3)
    with torch.no_grad():
        for activation in q_metric_relus(converted):
            activation.coupling.normal_(std=0.1)
            activation.project_()
    path = tmp_path / "net.onnx"
    torch.onnx.export(converted, (images,), path, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    assert not torch.allclose(converted(images), net(images), atol=1e-2)
    torch.testing.assert_close(torch.from_numpy(found), converted(images).detach(), atol=1e-5, rtol=1e-4)
