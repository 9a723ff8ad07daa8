# task: torch_cumulative_sum
# style: triton_scan
# what: tl.cumsum over tiles of a row, with a carry between the tiles
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_cumsum(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * cols
    carry = tl.zeros((), dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        mask = c < cols
        tile = tl.load(x_ptr + base + c, mask=mask, other=0.0)
        tl.store(y_ptr + base + c, tl.cumsum(tile, axis=0) + carry, mask=mask)
        carry += tl.sum(tile, axis=0)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        row_cumsum[(rows,)](x, y, cols, BLOCK=2048, num_warps=8)
        return y
