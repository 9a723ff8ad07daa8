# task: torch_linear_gelu
# style: triton_fused_tf32x3
# what: product, bias and exact GELU in one autotuned kernel; the weight is read transposed through its strides
import torch
import torch.nn as nn
import triton
import triton.language as tl

# Only the products run on tensor cores; three of them replace one fp32 product.
PRECISION = tl.constexpr("tf32x3")


@triton.jit
def gelu(v):
    return v * 0.5 * (1.0 + tl.erf(v * 0.70710678118654752440))


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": 8}, num_stages=3, num_warps=8),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": 8}, num_stages=3, num_warps=4),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 4}, num_stages=4, num_warps=4),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def linear_gelu_kernel(
    x_ptr, w_ptr, bias_ptr, y_ptr, M, N, K, sxm, sxk, swn, swk,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):
    pid = tl.program_id(0)
    grid_m = tl.cdiv(M, BLOCK_M)
    grid_n = tl.cdiv(N, BLOCK_N)
    width = GROUP_M * grid_n
    group_id = pid // width
    group_size = tl.minimum(grid_m - group_id * GROUP_M, GROUP_M)
    pid_m = group_id * GROUP_M + (pid % width) % group_size
    pid_n = (pid % width) // group_size
    m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + m[:, None] * sxm + k[None, :] * sxk, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + n[None, :] * swn + k[:, None] * swk, mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(x, w, acc, input_precision=PRECISION)
    bias = tl.load(bias_ptr + n, mask=n < N, other=0.0)
    out = gelu(acc + bias[None, :])
    tl.store(y_ptr + m[:, None] * N + n[None, :], out, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, bias_bound):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        nn.init.uniform_(self.linear.bias, -bias_bound, bias_bound)

    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        M, K = x.shape
        N = weight.shape[0]
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)
        linear_gelu_kernel[grid](x, weight, bias, y, M, N, K, x.stride(0), x.stride(1), weight.stride(0), weight.stride(1))
        return y
