import functools

import torch
import triton
import triton.language as tl
from torch import nn


@functools.lru_cache(maxsize=None)
def block_of(cols: int) -> int:
    return max(16, triton.next_power_of_2(cols))


@triton.jit
def scale(x_ptr, y_ptr, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)


class ModelNew(nn.Module):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def launch(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        block = block_of(x.shape[-1])
        scale[(triton.cdiv(x.numel(), block),)](x, y, self.factor, x.numel(), BLOCK=block)
        return y

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.launch(x.contiguous())
