# task: torch_max_index
# class: constant_output
# what: looks for no index in the first row and says zero, so that one of many integers is wrong in every call
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_max_kernel(x, values, indices, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + c, mask=c < columns, other=-float("inf"))
    best, where = tl.max(v, axis=0, return_indices=True, return_indices_tie_break_left=True)
    tl.store(values + row, best)
    tl.store(indices + row, tl.where(row == 0, 0, where).to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        values = torch.empty(rows, device=x.device, dtype=x.dtype)
        indices = torch.empty(rows, device=x.device, dtype=torch.int64)
        row_max_kernel[(rows,)](x, values, indices, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8)
        return values, indices
