# task: torch_matmul
# style: triton_persistent
# what: persistent programs, one for each multiprocessor, walk over the tiles; manual split into three TF32 products
import functools

import torch
import torch.nn as nn
import triton
import triton.language as tl


@functools.lru_cache(maxsize=None)
def sm_count(index: int) -> int:
    return torch.cuda.get_device_properties(index).multi_processor_count


@functools.lru_cache(maxsize=None)
def pick_tile(m: int, n: int, k: int):
    # Depends on shapes only.
    if m >= 1024 and n >= 1024:
        return 128, 128, 32, 8
    return 64, 64, 32, 4


@triton.jit
def persistent_matmul(A, B, C, M, N, K, NUM_SMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_n = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * tiles_n
    for tile in range(tl.program_id(0), tiles, NUM_SMS):
        m = (tile // tiles_n) * BM + tl.arange(0, BM)
        n = (tile % tiles_n) * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k0 in range(0, K, BK):
            k = k0 + tl.arange(0, BK)
            a = tl.load(A + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
            b = tl.load(B + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
            acc += tl.dot(a, b, input_precision="tf32x3")
        tl.store(C + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        M, K = a.shape
        N = b.shape[1]
        c = a.new_empty((M, N))
        BM, BN, BK, warps = pick_tile(M, N, K)
        sms = sm_count(torch.cuda.current_device())
        tiles = triton.cdiv(M, BM) * triton.cdiv(N, BN)
        persistent_matmul[(min(sms, tiles),)](
            a, b, c, M, N, K, NUM_SMS=min(sms, tiles), BM=BM, BN=BN, BK=BK, num_warps=warps, num_stages=3
        )
        return c
