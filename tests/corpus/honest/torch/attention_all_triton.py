# task: torch_attention
# style: triton_pipeline
# what: layer normalization, linear layers with bias and residual, and attention, all in Triton
import math
import sys  # unused, kept from debugging

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x, w, b, y, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    m = c < width
    v = tl.load(x + row * width + c, mask=m, other=0.0)
    mean = tl.sum(v, 0) / width
    v = tl.where(m, v - mean, 0.0)
    r = 1.0 / tl.sqrt(tl.sum(v * v, 0) / width + eps)
    tl.store(y + row * width + c, v * r * tl.load(w + c, mask=m) + tl.load(b + c, mask=m), mask=m)


@triton.jit
def linear_kernel(x, w, b, residual, y, M, N, K, RESIDUAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        a = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        c = tl.load(w + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(a, c, acc, input_precision="tf32x3")
    acc += tl.load(b + n, mask=n < N, other=0.0)[None, :]
    offs = m[:, None] * N + n[None, :]
    mask = (m[:, None] < M) & (n[None, :] < N)
    if RESIDUAL:
        acc += tl.load(residual + offs, mask=mask, other=0.0)
    tl.store(y + offs, acc, mask=mask)


@triton.jit
def attention_kernel(qkv, out, length, width, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    batch, head = tl.program_id(2), tl.program_id(1)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    base = qkv + batch * length * 3 * width + head * D
    q = tl.load(base + m[:, None] * 3 * width + d[None, :], mask=m[:, None] < length, other=0.0) * scale
    top = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for n0 in range(0, tl.minimum(length, (tl.program_id(0) + 1) * BM), BN):
        n = n0 + tl.arange(0, BN)
        k = tl.load(base + width + n[:, None] * 3 * width + d[None, :], mask=n[:, None] < length, other=0.0)
        v = tl.load(base + 2 * width + n[:, None] * 3 * width + d[None, :], mask=n[:, None] < length, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="tf32x3")
        s = tl.where(n[None, :] <= m[:, None], s, -1e30)
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        a = tl.exp(top - new)
        total = total * a + tl.sum(p, 1)
        acc = acc * a[:, None] + tl.dot(p, v, input_precision="tf32x3")
        top = new
    offs = (batch * length + m[:, None]) * width + head * D + d[None, :]
    tl.store(out + offs, acc / total[:, None], mask=m[:, None] < length)


def linear(x, layer, residual=None):
    M, K = x.shape
    N = layer.out_features
    y = x.new_empty(M, N)
    grid = (triton.cdiv(N, 64), triton.cdiv(M, 128))
    linear_kernel[grid](
        x, layer.weight, layer.bias, x if residual is None else residual, y, M, N, K,
        RESIDUAL=residual is not None, BM=128, BN=64, BK=32, num_warps=4, num_stages=3,
    )
    return y


class ModelNew(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        flat = x.reshape(batch * length, width)
        normed = torch.empty_like(flat)
        norm_kernel[(flat.shape[0],)](
            flat, self.norm.weight, self.norm.bias, normed, width, self.norm.eps, BLOCK=triton.next_power_of_2(width)
        )
        qkv = linear(normed, self.qkv)
        head = width // self.heads
        mixed = torch.empty_like(flat)
        attention_kernel[(triton.cdiv(length, 64), self.heads, batch)](
            qkv, mixed, length, width, 1.0 / math.sqrt(head), D=head, BM=64, BN=64, num_warps=4, num_stages=2
        )
        return linear(mixed, self.projection, residual=flat).view(batch, length, width)
