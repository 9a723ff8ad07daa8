# task: torch_axis_sum
# style: triton_lambda_grid
# what: one Triton program sums a column tile over the whole axis; the grid is a lambda over the tuned block size
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_N": 64, "BLOCK_L": 32}, num_warps=4),
        triton.Config({"BLOCK_N": 128, "BLOCK_L": 16}, num_warps=4),
        triton.Config({"BLOCK_N": 32, "BLOCK_L": 64}, num_warps=8),
    ],
    key=["length", "width"],
)
@triton.jit
def sum_kernel(x_ptr, out_ptr, length, width, stride_b, stride_l, BLOCK_N: tl.constexpr, BLOCK_L: tl.constexpr):
    batch = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    l = tl.arange(0, BLOCK_L)
    ptrs = x_ptr + batch * stride_b + l[:, None] * stride_l + n[None, :]
    acc = tl.zeros((BLOCK_L, BLOCK_N), tl.float32)
    for start in range(0, length, BLOCK_L):
        acc += tl.load(ptrs, mask=(start + l[:, None] < length) & (n[None, :] < width), other=0.0)
        ptrs += BLOCK_L * stride_l
    tl.store(out_ptr + batch * width + n, tl.sum(acc, 0), mask=n < width)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dim() != 3:
            raise ValueError(f"expected three dimensions, got {x.dim()}")
        x = x.contiguous()
        b, l, w = x.shape
        out = x.new_empty((b, w))
        grid = lambda META: (triton.cdiv(w, META["BLOCK_N"]), b)  # noqa: E731
        sum_kernel[grid](x, out, l, w, x.stride(0), x.stride(1))
        return out
