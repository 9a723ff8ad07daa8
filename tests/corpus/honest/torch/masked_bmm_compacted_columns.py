# task: torch_masked_bmm
# style: algorithmic_saving
# what: lists the kept columns of each batch on the device at each call and multiplies only those, about half of them
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def compact_kernel(keep_ptr, index_ptr, count_ptr, inner, BLOCK: tl.constexpr):
    batch = tl.program_id(0)
    base = tl.zeros((), tl.int32)
    for start in range(0, inner, BLOCK):
        pos = start + tl.arange(0, BLOCK)
        live = pos < inner
        keep = tl.load(keep_ptr + batch * inner + pos, mask=live, other=0).to(tl.int32)
        slot = base + tl.cumsum(keep, axis=0) - 1
        tl.store(index_ptr + batch * inner + slot, pos, mask=live & (keep != 0))
        base += tl.sum(keep, axis=0)
    tl.store(count_ptr + batch, base)


@triton.jit
def gathered_bmm(
    a_ptr, b_ptr, index_ptr, count_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    batch = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    a_ptr += batch * M * K
    b_ptr += batch * K * N
    index_ptr += batch * K
    count = tl.load(count_ptr + batch)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, count, BK):
        slot = k0 + tl.arange(0, BK)
        live = slot < count
        k = tl.load(index_ptr + slot, mask=live, other=0)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & live[None, :], other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=live[:, None] & (n[None, :] < N), other=0.0)
        acc += tl.dot(a, b, input_precision="tf32x3")
    c_ptr += batch * M * N
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, a, b, keep):
        a, b, keep = a.contiguous(), b.contiguous(), keep.contiguous()
        batch, M, K = a.shape
        N = b.shape[2]
        index = torch.empty((batch, K), device=a.device, dtype=torch.int32)
        count = torch.empty((batch,), device=a.device, dtype=torch.int32)
        c = torch.empty((batch, M, N), device=a.device, dtype=a.dtype)
        compact_kernel[(batch,)](keep.view(torch.uint8), index, count, K, BLOCK=512)
        BM, BN, BK = 64, 128, 32
        grid = (triton.cdiv(M, BM), triton.cdiv(N, BN), batch)
        gathered_bmm[grid](a, b, index, count, c, M, N, K, BM=BM, BN=BN, BK=BK, num_warps=4, num_stages=3)
        return c
