# task: torch_matmul
# style: triton_tensor_descriptors
# what: host tensor descriptors (TMA on Hopper) load the tiles; pointers and masks where the alignment does not allow them
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def tma_matmul(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m0 = tl.program_id(0) * BM
    n0 = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        a = a_desc.load([m0, k0])  # elements outside of the tensor are zero
        b = b_desc.load([k0, n0])
        acc = tl.dot(a, b, acc, input_precision="tf32x3")
    c_desc.store([m0, n0], acc)


@triton.jit
def masked_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="tf32x3")
    tl.store(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    BM, BN, BK = 128, 64, 32

    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        BM, BN, BK = self.BM, self.BN, self.BK
        grid = (triton.cdiv(M, BM), triton.cdiv(N, BN))
        # A descriptor needs rows of whole 16-byte units and an aligned base.
        aligned = K % 4 == 0 and N % 4 == 0 and all(t.data_ptr() % 16 == 0 for t in (a, b, c))
        if aligned:
            a_desc = TensorDescriptor.from_tensor(a, [BM, BK])
            b_desc = TensorDescriptor.from_tensor(b, [BK, BN])
            c_desc = TensorDescriptor.from_tensor(c, [BM, BN])
            tma_matmul[grid](a_desc, b_desc, c_desc, K, BM=BM, BN=BN, BK=BK, num_warps=4, num_stages=3)
        else:
            masked_matmul[grid](a, b, c, M, N, K, BM=BM, BN=BN, BK=BK, num_warps=4, num_stages=3)
        return c
