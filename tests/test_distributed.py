"""The constraints where several processes train one network, spread over them (FSDP2) or not (DDP), on the CPU."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

import detrame
from detrame import operators


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def whole(parameter: Tensor) -> Tensor:
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter


@pytest.mark.usefixtures("one_process")
def test_projection_of_layers_of_which_one_is_sharded() -> None:
    acts = detrame.QMetricReLU(4, groups=2), detrame.QMetricReLU(3, dim=0)
    net = nn.Sequential(*acts)
    fully_shard(acts[0], mesh=init_device_mesh("cpu", (1,)))
    for parameter in net.parameters():
        parameter.data.fill_(3)
    detrame.project_(net)
    for act in acts:
        coupling = whole(act.coupling).detach()
        assert (operators.diagonal(coupling) == 0).all()
        assert coupling.sum() == 3 * (coupling.numel() - len(coupling))
        assert (whole(act.gain) == 1).all()
        assert (whole(act.threshold) == 3).all()


def trained(kind: str) -> list[Tensor]:
    """The parameters after two steps; 3 and 5 channels do not go evenly into two processes."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 3, 3), detrame.QMetricReLU(3), nn.Flatten(), nn.Linear(27, 5), detrame.QMetricReLU(5, dim=0)
    )
    model: nn.Module = DistributedDataParallel(net) if kind == "ddp" else net
    if kind == "fsdp2":
        for layer in (net[0], net[1], net[3], net[4], net):
            fully_shard(layer, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.SGD(detrame.parameter_groups(model), lr=1, momentum=0.9)
    detrame.project_after(optimizer, model)
    for _ in range(2):
        model(torch.rand(4, 3, 5, 5)).sub(1).square().mean().backward()
        optimizer.step()
    return [whole(parameter).detach() for parameter in net.parameters()]


def train_in_one_of_two_processes(rank: int, folder: str, kind: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.save(trained(kind), f"{folder}/{rank}.pt")
    while not Path(f"{folder}/{1 - rank}.pt").exists():  # the other may still be hearing from this one
        time.sleep(0.01)
    os._exit(0)  # without a teardown: gloo's threads abort it now and then, with all work done


runs_here = pytest.mark.skipif(
    not hasattr(torch.cpu.Stream, "record_event"), reason="PyTorch 2.6 has FSDP2 for GPUs alone"
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param("fsdp2", marks=runs_here), "ddp"])
def test_training_in_two_processes_is_that_in_one(tmp_path: Path, kind: str) -> None:
    spawn(train_in_one_of_two_processes, (str(tmp_path), kind), nprocs=2)
    expected = trained("alone")
    assert (operators.diagonal(expected[2]) == 0).all()
    for rank in range(2):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt"), expected)
