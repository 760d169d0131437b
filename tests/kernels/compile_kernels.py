"""Compile, for an H200 and without one, the kernels that a training step and an evaluation of a network launch.

Triton's interpreter, which runs the kernels in the other tests, takes much that the compiler refuses. Launches are
caught here and compiled instead of run, so that what the passes compute is not looked at.
"""

import os
import re

os.environ.pop("TRITON_INTERPRET", None)

import torch
import triton
from torch import Tensor, nn
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

import detrame
from detrame.fusion import Fused
from detrame.kernels import whole_lines

TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.uint8: "*u8", torch.int64: "*i64"}
OPTIONS = ("num_warps", "num_stages")
compiled: dict[object, str] = {}


def compile_only(kernel: JITFunction, *args: object, grid: object, warmup: bool, **named: object) -> None:
    options = {name: named.pop(name) for name in OPTIONS if name in named}
    values = dict(zip(kernel.arg_names, args, strict=False)) | named
    fixed = {p.name for p in kernel.params if p.is_constexpr}
    signature = {name: "constexpr" if name in fixed else kind(values[name]) for name in kernel.arg_names}
    constants = {name: values[name] for name in fixed}
    key = kernel.__name__, *signature.values(), *constants.values()
    if key not in compiled:
        aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names) if "*" in signature[name]}
        source = ASTSource(kernel, signature, constants, aligned)
        found = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        assert not runs_on(found.asm["ttgir"]), f"{kernel.__name__} loads registers anew that a product still reads"
        compiled[key] = kernel.__name__


def runs_on(code: str) -> bool:
    """Whether products that read registers are pending in a loop: github.com/triton-lang/triton/issues/9433."""
    return "pendings = " in code.replace("pendings = 0", "") and bool(re.search(r"warp_group_dot .*#ttg.dot_op", code))


def kind(value: object) -> str:
    if isinstance(value, TensorDescriptor):
        return f"tensordesc<{TYPES[value.base.dtype][1:]}{list(value.block_shape)}>"
    return TYPES[value.dtype] if isinstance(value, Tensor) else "fp32" if isinstance(value, float) else "i32"


class Block(nn.Module):
    """A little of everything that is fused: both kinds of convolution, residual sums, a stride, Q-Metric ReLUs.

    The last reads what a parameter in float32 was added to.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.second, self.norm_2 = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.down, self.norm_3 = nn.Conv2d(16, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16)
        self.relu, self.activation = nn.ReLU(), detrame.QMetricReLU(16, kernel_size=3, iterations=3)
        self.third, self.norm_4 = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.shift, self.norm_5 = nn.Parameter(torch.zeros(1, 16, 1, 1)), nn.BatchNorm2d(16)
        self.activation_2 = detrame.QMetricReLU(16, kernel_size=3, iterations=3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm(self.first(x)))
        x = self.relu(self.norm_2(self.second(x)) + x)
        x = self.activation(self.norm_3(self.down(x)))
        x = self.relu(self.norm_4(self.third(x) + x))
        return self.activation_2(self.norm_5(x + self.shift))


def whole_lines_of_images() -> None:
    """These are no pass's choice where there is no GPU."""
    for channels, tile in ((96, 256), (192, 128)):
        x, weight = (
            torch.empty(shape, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
            for shape in [(128, channels, 16, 16), (channels, channels, 3, 3)]
        )
        whole_lines.convolve(x, weight, x, tile, epilogue="step", raw=x, threshold=torch.empty(channels))
        whole_lines.convolve(x, weight, x, tile, back=True, epilogue="mask", raw=x)


if __name__ == "__main__":
    JITFunction.run = compile_only
    block, images = Block(), torch.rand(128, 3, 32, 32)
    Fused(block.train(), torch.bfloat16)(images).float().sum().backward()
    with torch.no_grad():
        Fused(block.eval(), torch.bfloat16)(images)
    whole_lines_of_images()
    print(*sorted(set(compiled.values())))
