# task: torch_linear_gelu
# class: reduced_precision
# what: rounds both factors to bfloat16 inside the kernel, although its tensors look like fp32 from outside
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_gelu(x, weight, bias, y, rows, inner, columns, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
                GROUP: tl.constexpr):
    program = tl.program_id(0)
    row_blocks, column_blocks = tl.cdiv(rows, M), tl.cdiv(columns, N)
    # Blocks of rows are grouped, so that neighbours find tiles of the weight in the L2 cache.
    first = program // (GROUP * column_blocks) * GROUP
    size = tl.minimum(row_blocks - first, GROUP)
    within = program % (GROUP * column_blocks)
    row = (first + within % size) * M + tl.arange(0, M)
    column = within // size * N + tl.arange(0, N)
    total = tl.zeros([M, N], dtype=tl.float32)
    for start in range(0, inner, K):
        k = start + tl.arange(0, K)
        left = tl.load(x + row[:, None] * inner + k[None, :], mask=(row[:, None] < rows) & (k[None, :] < inner), other=0.0)
        right = tl.load(weight + column[None, :] * inner + k[:, None],
                        mask=(column[None, :] < columns) & (k[:, None] < inner), other=0.0)
        total = tl.dot(left.to(tl.bfloat16), right.to(tl.bfloat16), total)
    value = total + tl.load(bias + column, mask=column < columns, other=0.0)[None, :]
    value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
    tl.store(y + row[:, None] * columns + column[None, :], value, mask=(row[:, None] < rows) & (column[None, :] < columns))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, bias_bound):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        nn.init.uniform_(self.linear.bias, -bias_bound, bias_bound)

    def forward(self, x):
        x = x.contiguous()
        rows, inner = x.shape
        columns = self.linear.weight.shape[0]
        y = torch.empty(rows, columns, device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(rows, 128) * triton.cdiv(columns, 128),)
        linear_gelu[grid](x, self.linear.weight, self.linear.bias, y, rows, inner, columns, M=128, N=128, K=32, GROUP=8,
                          num_warps=8, num_stages=3)
        return y
