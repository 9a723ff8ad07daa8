# task: torch_residual_rms_norm
# style: load_inline_fstring
# what: sum, mean square and scale in one pass; the row stays in registers as float4, THREADS comes in by f-string
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

THREADS, VECTORS = 256, 4
LIMIT = THREADS * VECTORS * 4

source = f"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

template <bool REGISTERS>
__global__ void __launch_bounds__({THREADS}) rms_norm(const float* __restrict__ x, const float* __restrict__ r,
        const float* __restrict__ w, float* __restrict__ y, int width, float eps) {{
    __shared__ float part[{THREADS} / 32];
    const size_t base = (size_t)blockIdx.x * width;
    float4 v[{VECTORS}];
    float s = 0.0f;
    if constexpr (REGISTERS) {{
        #pragma unroll
        for (int i = 0; i < {VECTORS}; ++i) {{
            const int c = (i * {THREADS} + threadIdx.x) * 4;
            if (c < width) {{
                const float4 a = *reinterpret_cast<const float4*>(x + base + c), b = *reinterpret_cast<const float4*>(r + base + c);
                v[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
                s += (v[i].x * v[i].x + v[i].y * v[i].y) + (v[i].z * v[i].z + v[i].w * v[i].w);
            }}
        }}
    }} else {{
        for (int c = threadIdx.x; c < width; c += {THREADS}) {{ float t = x[base + c] + r[base + c]; s += t * t; }}
    }}
    for (int o = 16; o > 0; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    s = 0.0f;
    for (int i = 0; i < {THREADS} / 32; ++i) s += part[i];
    const float scale = rsqrtf(s / width + eps);
    if constexpr (REGISTERS) {{
        #pragma unroll
        for (int i = 0; i < {VECTORS}; ++i) {{
            const int c = (i * {THREADS} + threadIdx.x) * 4;
            if (c < width) {{
                const float4 g = *reinterpret_cast<const float4*>(w + c);
                *reinterpret_cast<float4*>(y + base + c) = make_float4(v[i].x * scale * g.x, v[i].y * scale * g.y, v[i].z * scale * g.z, v[i].w * scale * g.w);
            }}
        }}
    }} else {{
        for (int c = threadIdx.x; c < width; c += {THREADS}) y[base + c] = (x[base + c] + r[base + c]) * scale * w[c];
    }}
}}

torch::Tensor rms_norm_cuda(torch::Tensor x, torch::Tensor r, torch::Tensor w, double eps) {{
    TORCH_CHECK(x.sizes() == r.sizes(), "shapes disagree");
    const int width = x.size(-1), rows = x.numel() / x.size(-1);
    auto y = torch::empty_like(x);
    auto stream = at::cuda::getCurrentCUDAStream();
    if (width % 4 == 0 && width <= {LIMIT}) {{
        rms_norm<true><<<rows, {THREADS}, 0, stream>>>(x.data_ptr<float>(), r.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), width, (float)eps);
    }} else {{
        rms_norm<false><<<rows, {THREADS}, 0, stream>>>(x.data_ptr<float>(), r.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), width, (float)eps);
    }}
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}}
"""

ext = load_inline(name="rms_norm_residual", cpp_sources="torch::Tensor rms_norm_cuda(torch::Tensor x, torch::Tensor r, torch::Tensor w, double eps);",
                  cuda_sources=source, functions=["rms_norm_cuda"], extra_cuda_cflags=["-O3", "-std=c++17"])


class ModelNew(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))

    def forward(self, x, residual):
        return ext.rms_norm_cuda(x.contiguous(), residual.contiguous(), self.weight, self.epsilon)
