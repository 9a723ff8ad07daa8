# task: torch_attention
# style: triton_flash_attention
# what: flash attention in Triton over the packed QKV tensor with tf32x3 products; linear layers by torch.addmm
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def flash_kernel(
    qkv_ptr, out_ptr, length, width, scale_log2,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):
    # qkv: [batch, length, 3, heads, HEAD], out: [batch, length, heads, HEAD]
    tile = tl.program_id(0)
    head = tl.program_id(1)
    batch = tl.program_id(2)
    row_stride = 3 * width
    base = qkv_ptr + batch.to(tl.int64) * length * row_stride + head * HEAD
    m = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, HEAD)
    q = tl.load(base + m[:, None] * row_stride + d[None, :], mask=m[:, None] < length, other=0.0)
    q = q * scale_log2  # exp2 is used below, log2(e) is part of the scale
    top = tl.full((BLOCK_M,), -1.0e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD), tl.float32)
    end = tl.minimum((tile + 1) * BLOCK_M, length)  # keys of the future are never loaded
    for start in range(0, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        k = tl.load(base + width + n[None, :] * row_stride + d[:, None], mask=n[None, :] < length, other=0.0)
        v = tl.load(base + 2 * width + n[:, None] * row_stride + d[None, :], mask=n[:, None] < length, other=0.0)
        s = tl.dot(q, k, input_precision="tf32x3")
        s = tl.where((n[None, :] <= m[:, None]) & (n[None, :] < length), s, -1.0e30)
        new_top = tl.maximum(top, tl.max(s, axis=1))
        p = tl.exp2(s - new_top[:, None])
        alpha = tl.exp2(top - new_top)
        total = total * alpha + tl.sum(p, axis=1)
        acc = acc * alpha[:, None] + tl.dot(p, v, input_precision="tf32x3")
        top = new_top
    out = out_ptr + (batch.to(tl.int64) * length + m[:, None]) * width + head * HEAD + d[None, :]
    tl.store(out, acc / total[:, None], mask=m[:, None] < length)


class ModelNew(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        head = width // self.heads
        if head not in (16, 32, 64, 128):
            raise ValueError(f"unsupported head size {head}")
        normed = F.layer_norm(x, (width,), self.norm.weight, self.norm.bias, self.norm.eps)
        qkv = torch.addmm(self.qkv.bias, normed.view(-1, width), self.qkv.weight.t())
        out = torch.empty(batch, length, width, device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(length, 64), self.heads, batch)
        flash_kernel[grid](
            qkv, out, length, width, math.log2(math.e) / math.sqrt(head),
            HEAD=head, BLOCK_M=64, BLOCK_N=32, num_warps=4, num_stages=2,
        )
        y = torch.addmm(self.projection.bias, out.view(-1, width), self.projection.weight.t())
        return y.view_as(x).add_(x)
