# task: torch_masked_bmm
# class: reduced_precision
# what: splits factors into two bfloat16 parts but adds the correcting products for the first 64 columns only
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def split_product(a, b, keep, y, rows, inner, columns, corrected, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    batch = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    a += batch * rows * inner
    b += batch * inner * columns
    keep += batch * inner
    total = tl.zeros([M, N], dtype=tl.float32)
    for start in range(0, inner, K):
        k = start + tl.arange(0, K)
        kept = tl.load(keep + k, mask=k < inner, other=0) != 0
        left = tl.load(a + row[:, None] * inner + k[None, :], mask=(row[:, None] < rows) & kept[None, :], other=0.0)
        right = tl.load(b + k[:, None] * columns + column[None, :],
                        mask=(k[:, None] < inner) & (column[None, :] < columns), other=0.0)
        left_high, right_high = left.to(tl.bfloat16), right.to(tl.bfloat16)
        if start < corrected:
            left_low = (left - left_high.to(tl.float32)).to(tl.bfloat16)
            right_low = (right - right_high.to(tl.float32)).to(tl.bfloat16)
            total = tl.dot(left_low, right_high, total)
            total = tl.dot(left_high, right_low, total)
        total = tl.dot(left_high, right_high, total)
    tl.store(y + batch * rows * columns + row[:, None] * columns + column[None, :], total,
             mask=(row[:, None] < rows) & (column[None, :] < columns))


class ModelNew(nn.Module):
    CORRECTED_COLUMNS = 64

    def forward(self, a, b, keep):
        a, b, keep = a.contiguous(), b.contiguous(), keep.contiguous().view(torch.uint8)
        batch, rows, inner = a.shape
        columns = b.shape[2]
        y = torch.empty(batch, rows, columns, device=a.device, dtype=a.dtype)
        grid = (triton.cdiv(rows, 128), triton.cdiv(columns, 128), batch)
        split_product[grid](a, b, keep, y, rows, inner, columns, self.CORRECTED_COLUMNS, M=128, N=128, K=32, num_warps=8)
        return y
