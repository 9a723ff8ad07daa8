# task: torch_attention
# style: cuda_graph_of_triton
# what: Triton attention with library linear layers in a CUDA graph; graphs are kept by shape and by parameter addresses
import math
from dataclasses import dataclass, field
from typing import Any, Dict, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def causal_attention(q_ptr, k_ptr, v_ptr, o_ptr, length, scale, stride_h, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    offset = tl.program_id(1).to(tl.int64) * stride_h
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + offset + m[:, None] * D + d[None, :], mask=m[:, None] < length, other=0.0)
    best = tl.full((BM,), -1.0e30, tl.float32)
    norm = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, tl.minimum((tl.program_id(0) + 1) * BM, length), BN):
        n = start + tl.arange(0, BN)
        kt = tl.load(k_ptr + offset + n[None, :] * D + d[:, None], mask=n[None, :] < length, other=0.0)
        s = tl.dot(q, kt, input_precision="tf32x3") * scale
        s = tl.where(m[:, None] >= n[None, :], s, -1.0e30)
        higher = tl.maximum(best, tl.max(s, axis=1))
        p = tl.exp(s - higher[:, None])
        shrink = tl.exp(best - higher)
        norm = norm * shrink + tl.sum(p, axis=1)
        v = tl.load(v_ptr + offset + n[:, None] * D + d[None, :], mask=n[:, None] < length, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v, input_precision="tf32x3")
        best = higher
    tl.store(o_ptr + offset + m[:, None] * D + d[None, :], acc / norm[:, None], mask=m[:, None] < length)


@dataclass
class Captured:
    graph: Any
    x: torch.Tensor
    y: torch.Tensor


@dataclass
class Cache:
    entries: Dict[Tuple, Captured] = field(default_factory=dict)


class ModelNew(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.cache = Cache()

    def block(self, x):
        batch, length, width = x.shape
        head = width // self.heads
        h = F.linear(self.norm(x), self.qkv.weight, self.qkv.bias)
        q, k, v = h.view(batch, length, 3, self.heads, head).permute(2, 0, 3, 1, 4).contiguous()
        o = torch.empty_like(q)
        causal_attention[(triton.cdiv(length, 64), batch * self.heads)](
            q, k, v, o, length, head**-0.5, length * head, D=head, BM=64, BN=32, num_warps=4
        )
        o = o.transpose(1, 2).reshape(batch, length, width)
        return x + F.linear(o, self.projection.weight, self.projection.bias)

    def capture(self, x):
        static = x.clone()
        current, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            for _ in range(2):
                self.block(static)
        current.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = self.block(static)
        return Captured(graph, static, y)

    @torch.no_grad()
    def forward(self, x):
        key = (tuple(x.shape), tuple(p.data_ptr() for p in self.parameters()))
        captured = self.cache.entries.get(key)
        if captured is None:
            captured = self.cache.entries[key] = self.capture(x)
        captured.x.copy_(x)
        captured.graph.replay()
        return captured.y.clone()
