# task: torch_sequential_ffn
# style: torch_library_triton_op
# what: torch.library.triton_op with wrap_triton for the SiLU linear layer; norm and second layer by the library
import torch
import torch.nn as nn
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton


@triton.jit
def linear_silu_kernel(x, w, b, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        a = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        c = tl.load(w + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(a, c, acc, input_precision="tf32x3")
    acc += tl.load(b + n, mask=n < N, other=0.0)[None, :]
    acc = acc * tl.sigmoid(acc)
    tl.store(y + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


@triton_op("corpus_ffn::linear_silu", mutates_args={})
def linear_silu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    M, K = x.shape
    N = weight.shape[0]
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 64))
    wrap_triton(linear_silu_kernel)[grid](x, weight, bias, y, M, N, K, BM=128, BN=64, BK=32, num_warps=4, num_stages=3)
    return y


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, width))

    def forward(self, x):
        norm, up, down = self.net[0], self.net[1], self.net[-1]
        hidden = linear_silu(norm(x).contiguous(), up.weight, up.bias)
        return torch.addmm(down.bias, hidden, down.weight.t()).add_(x)
