# task: torch_layer_norm
# style: load_inline_fstring
# what: Welford statistics per thread, merged in the block; block size and epsilon come in by f-string
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

THREADS = 256
WARPS = THREADS // 32


def build(eps: float):
    source = f"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

struct Welford {{ float mean; float m2; float count; }};

__device__ __forceinline__ Welford merge(Welford a, Welford b) {{
    float count = a.count + b.count;
    if (count == 0.0f) return a;
    float delta = b.mean - a.mean;
    float share = b.count / count;
    return {{ a.mean + delta * share, a.m2 + b.m2 + delta * delta * a.count * share, count }};
}}

__global__ void __launch_bounds__({THREADS}) layer_norm_kernel(
    const float* __restrict__ x, const float* __restrict__ gamma, const float* __restrict__ beta,
    float* __restrict__ y, int width)
{{
    __shared__ Welford parts[{WARPS}];
    const float* row = x + (size_t)blockIdx.x * width;
    float* out = y + (size_t)blockIdx.x * width;
    Welford state = {{ 0.0f, 0.0f, 0.0f }};
    for (int i = threadIdx.x; i < width; i += {THREADS}) {{
        float v = row[i];
        state.count += 1.0f;
        float delta = v - state.mean;
        state.mean += delta / state.count;
        state.m2 += delta * (v - state.mean);
    }}
    #pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {{
        Welford other;
        other.mean = __shfl_down_sync(0xffffffffu, state.mean, offset);
        other.m2 = __shfl_down_sync(0xffffffffu, state.m2, offset);
        other.count = __shfl_down_sync(0xffffffffu, state.count, offset);
        state = merge(state, other);
    }}
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = state;
    __syncthreads();
    state = parts[0];
    #pragma unroll
    for (int w = 1; w < {WARPS}; ++w) state = merge(state, parts[w]);
    const float mean = state.mean;
    const float rstd = rsqrtf(state.m2 / state.count + {eps!r}f);
    for (int i = threadIdx.x; i < width; i += {THREADS}) {{
        out[i] = (row[i] - mean) * rstd * gamma[i] + beta[i];
    }}
}}

torch::Tensor layer_norm_cuda(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta) {{
    int width = x.size(-1);
    int rows = x.numel() / width;
    auto y = torch::empty_like(x);
    layer_norm_kernel<<<rows, {THREADS}, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), gamma.data_ptr<float>(), beta.data_ptr<float>(), y.data_ptr<float>(), width);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}}
"""
    return load_inline(
        name="layer_norm_welford_f",
        cpp_sources="torch::Tensor layer_norm_cuda(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta);",
        cuda_sources=source,
        functions=["layer_norm_cuda"],
        extra_cuda_cflags=["-O3"],
        verbose=False,
    )


class ModelNew(nn.Module):
    def __init__(self, width):
        super(ModelNew, self).__init__()
        self.norm = nn.LayerNorm(width)
        self.ext = build(self.norm.eps)

    def forward(self, x):
        return self.ext.layer_norm_cuda(x.contiguous(), self.norm.weight, self.norm.bias)
