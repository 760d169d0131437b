"""The kernels' tests run on a GPU where there is one, in Triton's interpreter elsewhere."""

import os
from importlib.util import find_spec
from typing import Any

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    if find_spec("triton"):
        import triton
        from triton.runtime import interpreter

        if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7):
            patch = interpreter._patch_lang_tensor

            def patched(tensor: Any, *scope: Any) -> None:
                """An array of one value is no number to NumPy any more, but was to Triton before 3.7."""
                patch(tensor, *scope)
                tensor.__index__ = lambda self: int(self.handle.data.squeeze())

            interpreter._patch_lang_tensor = patched
