# task: torch_layer_norm
# style: inline_ptx_volatile
# what: non-coherent and streaming 16-byte accesses by inline PTX, the row stays in registers
import os
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")

KERNEL = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__device__ __forceinline__ float4 load_stream(const float* p) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}

__device__ __forceinline__ void store_stream(float* p, float4 v) {
    asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};"
                 :: "l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}

template <int THREADS>
__device__ float block_sum(float v) {
    __shared__ float part[THREADS / 32];
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    float s = 0.0f;
    #pragma unroll
    for (int i = 0; i < THREADS / 32; ++i) s += part[i];
    return s;
}

template <int THREADS, int VECTORS>
__global__ __launch_bounds__(THREADS) void layer_norm(const float* __restrict__ x, const float* __restrict__ w,
                                                      const float* __restrict__ b, float* __restrict__ y,
                                                      int width, float eps) {
    const float* src = x + (size_t)blockIdx.x * width;
    float* dst = y + (size_t)blockIdx.x * width;
    float4 v[VECTORS];
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        int c = (i * THREADS + threadIdx.x) * 4;
        v[i] = c < width ? load_stream(src + c) : make_float4(0.f, 0.f, 0.f, 0.f);
        sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
    }
    const float mean = block_sum<THREADS>(sum) / width;
    float square = 0.0f;
    #pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        int c = (i * THREADS + threadIdx.x) * 4;
        if (c < width) {
            v[i].x -= mean; v[i].y -= mean; v[i].z -= mean; v[i].w -= mean;
            square += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
        }
    }
    const float rstd = rsqrtf(block_sum<THREADS>(square) / width + eps);
    #pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        int c = (i * THREADS + threadIdx.x) * 4;
        if (c < width) {
            float4 g = *reinterpret_cast<const float4*>(w + c);
            float4 s = *reinterpret_cast<const float4*>(b + c);
            store_stream(dst + c, make_float4(v[i].x * rstd * g.x + s.x, v[i].y * rstd * g.y + s.y,
                                              v[i].z * rstd * g.z + s.z, v[i].w * rstd * g.w + s.w));
        }
    }
}

torch::Tensor layer_norm_forward(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps) {
    const int width = x.size(-1);
    const int rows = x.numel() / width;
    TORCH_CHECK(width % 4 == 0 && width <= 4096, "width must be a multiple of 4 and at most 4096, got ", width);
    auto y = torch::empty_like(x);
    layer_norm<256, 4><<<rows, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), width, (float)eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

layer_norm_ext = load_inline(
    name="layer_norm_ptx_loads",
    cpp_sources="torch::Tensor layer_norm_forward(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps);",
    cuda_sources=KERNEL,
    functions=["layer_norm_forward"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90,code=sm_90"],
)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return layer_norm_ext.layer_norm_forward(x.contiguous(), self.norm.weight, self.norm.bias, self.norm.eps)
