# task: torch_attention
# style: load_inline_fstring
# what: library products, one CUDA kernel for scale, causal mask and softmax in place; masked part is written as zero
import math
import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"

THREADS = 128

cuda_source = f"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#define THREADS {THREADS}
#define WARPS ({THREADS} / 32)

template <bool MAX>
__device__ float reduce(float v, float* shared) {{
    for (int o = 16; o > 0; o >>= 1) {{
        float w = __shfl_xor_sync(0xffffffffu, v, o);
        v = MAX ? fmaxf(v, w) : v + w;
    }}
    __syncthreads();
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = v;
    __syncthreads();
    v = shared[0];
    for (int i = 1; i < WARPS; ++i) v = MAX ? fmaxf(v, shared[i]) : v + shared[i];
    return v;
}}

// scores: [batch * heads, length, length]; one block for each row
__global__ __launch_bounds__(THREADS) void causal_softmax(float* __restrict__ scores, int length, float scale) {{
    extern __shared__ float row[];
    __shared__ float shared[WARPS];
    const int query = blockIdx.x;
    float* p = scores + ((size_t)blockIdx.y * length + query) * length;
    const int live = query + 1;
    float top = -INFINITY;
    for (int i = threadIdx.x; i < live; i += THREADS) {{
        float v = p[i] * scale;
        row[i] = v;
        top = fmaxf(top, v);
    }}
    top = reduce<true>(top, shared);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < live; i += THREADS) {{
        float e = expf(row[i] - top);
        row[i] = e;
        sum += e;
    }}
    const float inverse = 1.0f / reduce<false>(sum, shared);
    for (int i = threadIdx.x; i < length; i += THREADS) p[i] = i < live ? row[i] * inverse : 0.0f;
}}

void causal_softmax_(torch::Tensor scores, double scale) {{
    TORCH_CHECK(scores.is_contiguous() && scores.dim() == 3);
    const int length = scores.size(2);
    TORCH_CHECK(scores.size(0) <= 65535, "too many matrices");
    causal_softmax<<<dim3(length, scores.size(0)), THREADS, length * sizeof(float), at::cuda::getCurrentCUDAStream()>>>(
        scores.data_ptr<float>(), length, (float)scale);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}}
"""

softmax_ext = load_inline(
    name=f"causal_softmax_{THREADS}",
    cpp_sources="void causal_softmax_(torch::Tensor scores, double scale);",
    cuda_sources=cuda_source,
    functions=["causal_softmax_"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    @torch.no_grad()
    def forward(self, x):
        batch, length, width = x.shape
        head = width // self.heads
        qkv = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, head).permute(2, 0, 3, 1, 4).contiguous()
        q, k, v = qkv.flatten(1, 2).unbind(0)  # [batch * heads, length, head] each
        scores = torch.bmm(q, k.transpose(1, 2))
        softmax_ext.causal_softmax_(scores, 1.0 / math.sqrt(head))
        y = torch.bmm(scores, v).view(batch, self.heads, length, head).transpose(1, 2).reshape(batch, length, width)
        return x + self.projection(y)
