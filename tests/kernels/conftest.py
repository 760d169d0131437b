"""The kernels' tests run on a GPU where there is one, in Triton's interpreter elsewhere."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
