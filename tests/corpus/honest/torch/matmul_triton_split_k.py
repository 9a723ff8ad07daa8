# task: torch_matmul
# style: split_k_atomics
# what: split-K with atomic adds into a zeroed result; the order of the adds, and with it the last bit, varies
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def split_k_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, k_per_split,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    begin = tl.program_id(2) * k_per_split
    end = tl.minimum(begin + k_per_split, K)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(begin, end, BK):
        k = k0 + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < end), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k[:, None] < end) & (n[None, :] < N), other=0.0)
        acc += tl.dot(a, b, input_precision="tf32x3")
    tl.atomic_add(c_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N), sem="relaxed")


class ModelNew(nn.Module):
    def __init__(self, split_k: int = 2):
        super().__init__()
        self.split_k = split_k

    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        M, K = a.shape
        N = b.shape[1]
        c = torch.zeros((M, N), device=a.device, dtype=a.dtype)
        BM, BN, BK = 128, 128, 32
        k_per_split = triton.cdiv(triton.cdiv(K, self.split_k), BK) * BK
        grid = (triton.cdiv(M, BM), triton.cdiv(N, BN), triton.cdiv(K, k_per_split))
        split_k_kernel[grid](a, b, c, M, N, K, k_per_split, BM=BM, BN=BN, BK=BK, num_warps=8, num_stages=3)
        return c
