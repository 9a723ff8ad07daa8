# task: torch_axis_sum
# style: workspace_cache_by_shape
# what: two Triton stages over a workspace that is kept by shape and device and fully rewritten at each call
from typing import Dict, Tuple

import torch
import torch.nn as nn
import triton
import triton.language as tl

# The cache holds memory, never results: stage one writes every element before stage two reads it.
_workspace_cache: Dict[Tuple, torch.Tensor] = {}


def get_workspace(shape: Tuple[int, ...], device: torch.device) -> torch.Tensor:
    key = (shape, device)
    buffer = _workspace_cache.get(key)
    if buffer is None:
        buffer = torch.empty(shape, device=device, dtype=torch.float32)
        _workspace_cache[key] = buffer
    return buffer


@triton.jit
def stage_one(x, partial, length, width, chunk, parts, BLOCK_N: tl.constexpr, ROWS: tl.constexpr):
    pid_n, pid_part, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    begin = pid_part * chunk
    end = tl.minimum(begin + chunk, length)
    acc = tl.zeros((ROWS, BLOCK_N), dtype=tl.float32)
    base = x + batch.to(tl.int64) * length * width
    for start in range(begin, end, ROWS):
        rows = start + tl.arange(0, ROWS)
        mask = (rows[:, None] < end) & (cols[None, :] < width)
        acc += tl.load(base + rows[:, None] * width + cols[None, :], mask=mask, other=0.0)
    tl.store(partial + (batch * parts + pid_part) * width + cols, tl.sum(acc, axis=0), mask=cols < width)


@triton.jit
def stage_two(partial, out, width, parts, BLOCK_N: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    batch = tl.program_id(1)
    acc = tl.zeros((BLOCK_N,), dtype=tl.float32)
    for part in range(0, parts):
        acc += tl.load(partial + (batch * parts + part) * width + cols, mask=cols < width, other=0.0)
    tl.store(out + batch * width + cols, acc, mask=cols < width)


class ModelNew(nn.Module):
    def __init__(self, parts: int = 8):
        super().__init__()
        self.parts = parts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, length, width = x.shape
        chunk = triton.cdiv(length, self.parts)
        partial = get_workspace((batch, self.parts, width), x.device)
        out = torch.empty((batch, width), device=x.device, dtype=x.dtype)
        stage_one[(triton.cdiv(width, 256), self.parts, batch)](
            x, partial, length, width, chunk, self.parts, BLOCK_N=256, ROWS=8, num_warps=4
        )
        stage_two[(triton.cdiv(width, 256), batch)](partial, out, width, self.parts, BLOCK_N=256, num_warps=2)
        return out
