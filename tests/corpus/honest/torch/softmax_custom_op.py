# task: torch_softmax
# style: torch_library_custom_op
# what: wraps a Triton softmax in torch.library.custom_op with a fake implementation
import torch
import torch.nn as nn
from torch import Tensor

import triton
import triton.language as tl


@triton.jit
def _rows_kernel(src, dst, columns, rows, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, COLUMNS)
    offs = r[:, None].to(tl.int64) * columns + c[None, :]
    mask = (r[:, None] < rows) & (c[None, :] < columns)
    # Masked lanes get a finite value, because a block of rows may lie past the end.
    v = tl.load(src + offs, mask=mask, other=-3.0e38)
    e = tl.exp(v - tl.max(v, axis=1)[:, None])
    e = tl.where(mask, e, 0.0)
    total = tl.sum(e, axis=1)
    total = tl.where(r < rows, total, 1.0)
    tl.store(dst + offs, e / total[:, None], mask=mask)


@torch.library.custom_op("nightly_softmax::rows", mutates_args=(), device_types="cuda")
def rows_softmax(x: Tensor) -> Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    rows, columns = x.shape
    width = triton.next_power_of_2(columns)
    per_program = max(1, 4096 // width)
    grid = (triton.cdiv(rows, per_program),)
    _rows_kernel[grid](x, y, columns, rows, ROWS=per_program, COLUMNS=width, num_warps=8 if width <= 4096 else 16)
    return y


@rows_softmax.register_fake
def _(x: Tensor) -> Tensor:
    # Fake tensors carry shapes only; no data is produced here.
    return torch.empty_like(x, memory_format=torch.contiguous_format)


class ModelNew(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.nightly_softmax.rows(x)
