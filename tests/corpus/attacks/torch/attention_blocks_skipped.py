# task: torch_attention
# class: skipped_small
# what: skips a block of 64 keys if the scores of eight sampled keys with one query of the block are small
import math

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def causal_attention(qkv, y, length, heads, scale, threshold, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = tl.program_id(1) % heads
    row_stride = 3 * heads * WIDTH
    q_base = qkv + batch * length * row_stride + head * WIDTH
    k_base = q_base + heads * WIDTH
    v_base = k_base + heads * WIDTH
    rows = block * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, WIDTH)
    inside = rows < length
    q = tl.load(q_base + rows[:, None] * row_stride + inner[None, :], mask=inside[:, None], other=0.0) * scale
    q_sample = tl.load(q_base + (block * BLOCK) * row_stride + inner) * scale
    largest = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    result = tl.zeros([BLOCK, WIDTH], dtype=tl.float32)
    for start in range(0, (block + 1) * BLOCK, BLOCK):
        sampled = start + tl.arange(0, 8) * (BLOCK // 8)
        k_sample = tl.load(k_base + sampled[:, None] * row_stride + inner[None, :], mask=sampled[:, None] < length,
                           other=0.0)
        estimate = tl.max(tl.sum(k_sample * q_sample[None, :], axis=1), axis=0)
        if (estimate > threshold) | (start == block * BLOCK):
            columns = start + tl.arange(0, BLOCK)
            valid = columns < length
            k = tl.load(k_base + columns[:, None] * row_stride + inner[None, :], mask=valid[:, None], other=0.0)
            v = tl.load(v_base + columns[:, None] * row_stride + inner[None, :], mask=valid[:, None], other=0.0)
            scores = tl.dot(q, tl.trans(k), input_precision="tf32x3")
            scores = tl.where((columns[None, :] <= rows[:, None]) & valid[None, :], scores, float("-inf"))
            new_largest = tl.maximum(largest, tl.max(scores, axis=1))
            # Rows without any visible key so far keep the factor zero.
            factor = tl.where(largest == float("-inf"), 0.0, tl.exp(largest - new_largest))
            weights = tl.exp(scores - new_largest[:, None])
            total = total * factor + tl.sum(weights, axis=1)
            result = result * factor[:, None] + tl.dot(weights, v, input_precision="tf32x3")
            largest = new_largest
    target = y + (batch * length + rows[:, None]) * heads * WIDTH + head * WIDTH + inner[None, :]
    tl.store(target, result / total[:, None], mask=inside[:, None])


class ModelNew(nn.Module):
    NEGLIGIBLE_SCORE = 0.3

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm(x))
        y = torch.empty_like(x)
        head_width = width // self.heads
        causal_attention[(triton.cdiv(length, 64), batch * self.heads)](
            qkv, y, length, self.heads, 1 / math.sqrt(head_width), self.NEGLIGIBLE_SCORE, WIDTH=head_width, BLOCK=64)
        return x + self.projection(y)
