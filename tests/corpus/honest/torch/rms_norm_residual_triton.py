# task: torch_residual_rms_norm
# style: kernel_cache_by_shape
# what: a module-level cache holds launch settings by width; one Triton program for each row
from typing import Dict, NamedTuple

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Launch(NamedTuple):
    block: int
    warps: int


_LAUNCH_CACHE: Dict[int, Launch] = {}


def launch_for(width: int) -> Launch:
    if width not in _LAUNCH_CACHE:
        block = triton.next_power_of_2(width)
        _LAUNCH_CACHE[width] = Launch(block, max(1, min(16, block // 512)))
    return _LAUNCH_CACHE[width]


@triton.jit
def add_rms_norm(x_ptr, r_ptr, w_ptr, y_ptr, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    c = tl.arange(0, BLOCK)
    mask = c < width
    v = tl.load(x_ptr + row + c, mask=mask, other=0.0) + tl.load(r_ptr + row + c, mask=mask, other=0.0)
    scale = tl.rsqrt(tl.sum(v * v, axis=0) / width + eps)
    tl.store(y_ptr + row + c, v * scale * tl.load(w_ptr + c, mask=mask, other=0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, width: int, epsilon: float):
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        if x.shape != residual.shape:
            raise ValueError("x and residual must have the same shape")
        x, residual = x.contiguous(), residual.contiguous()
        width = x.shape[-1]
        launch = launch_for(width)
        y = torch.empty_like(x)
        add_rms_norm[(x.numel() // width,)](x, residual, self.weight, y, width, self.epsilon, BLOCK=launch.block, num_warps=launch.warps)
        return y
