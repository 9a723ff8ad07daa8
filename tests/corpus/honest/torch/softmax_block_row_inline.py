# task: torch_softmax
# style: load_inline_plain
# what: keeps a row in registers as float4 and reduces the maximum and the sum with warp shuffles
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cfloat>

constexpr int THREADS = 512;

__device__ __forceinline__ float warp_max(float v) {
    #pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, offset));
    return v;
}

__device__ __forceinline__ float warp_sum(float v) {
    #pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(0xffffffffu, v, offset);
    return v;
}

template <bool MAXIMUM>
__device__ __forceinline__ float block_reduce(float v, float* shared) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    v = MAXIMUM ? warp_max(v) : warp_sum(v);
    __syncthreads();  // the previous use of shared has to be over
    if (lane == 0) shared[warp] = v;
    __syncthreads();
    v = lane < THREADS / 32 ? shared[lane] : (MAXIMUM ? -FLT_MAX : 0.0f);
    return MAXIMUM ? warp_max(v) : warp_sum(v);
}

// VPT float4 values per thread; the row has at most THREADS * VPT * 4 columns.
template <int VPT>
__global__ void __launch_bounds__(THREADS) softmax_vec4(const float4* __restrict__ x, float4* __restrict__ y, int vectors) {
    __shared__ float shared[32];
    const long long base = (long long)blockIdx.x * vectors;
    float4 value[VPT];
    float top = -FLT_MAX;
    #pragma unroll
    for (int i = 0; i < VPT; ++i) {
        const int column = threadIdx.x + i * THREADS;
        if (column < vectors) {
            value[i] = x[base + column];
            top = fmaxf(top, fmaxf(fmaxf(value[i].x, value[i].y), fmaxf(value[i].z, value[i].w)));
        }
    }
    top = block_reduce<true>(top, shared);
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < VPT; ++i) {
        if (threadIdx.x + i * THREADS < vectors) {
            value[i].x = expf(value[i].x - top);
            value[i].y = expf(value[i].y - top);
            value[i].z = expf(value[i].z - top);
            value[i].w = expf(value[i].w - top);
            sum += (value[i].x + value[i].y) + (value[i].z + value[i].w);
        }
    }
    const float scale = 1.0f / block_reduce<false>(sum, shared);
    #pragma unroll
    for (int i = 0; i < VPT; ++i) {
        const int column = threadIdx.x + i * THREADS;
        if (column < vectors) {
            y[base + column] = make_float4(value[i].x * scale, value[i].y * scale, value[i].z * scale, value[i].w * scale);
        }
    }
}

__global__ void __launch_bounds__(THREADS) softmax_any(const float* __restrict__ x, float* __restrict__ y, int columns) {
    __shared__ float shared[32];
    x += (long long)blockIdx.x * columns;
    y += (long long)blockIdx.x * columns;
    float top = -FLT_MAX;
    for (int c = threadIdx.x; c < columns; c += THREADS) top = fmaxf(top, x[c]);
    top = block_reduce<true>(top, shared);
    float sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += THREADS) sum += expf(x[c] - top);
    const float scale = 1.0f / block_reduce<false>(sum, shared);
    for (int c = threadIdx.x; c < columns; c += THREADS) y[c] = expf(x[c] - top) * scale;
}

torch::Tensor softmax_forward(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32 && x.dim() == 2, "x must be a float32 matrix");
    x = x.contiguous();
    auto y = torch::empty_like(x);
    const int rows = x.size(0), columns = x.size(1);
    auto stream = at::cuda::getCurrentCUDAStream();
    const float* px = x.data_ptr<float>();
    float* py = y.data_ptr<float>();
    const bool aligned = columns % 4 == 0 && reinterpret_cast<uintptr_t>(px) % 16 == 0;
    if (aligned && columns <= THREADS * 4) {
        softmax_vec4<1><<<rows, THREADS, 0, stream>>>((const float4*)px, (float4*)py, columns / 4);
    } else if (aligned && columns <= THREADS * 4 * 4) {
        softmax_vec4<4><<<rows, THREADS, 0, stream>>>((const float4*)px, (float4*)py, columns / 4);
    } else {
        softmax_any<<<rows, THREADS, 0, stream>>>(px, py, columns);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

cpp_source = "torch::Tensor softmax_forward(torch::Tensor x);"

softmax_module = load_inline(
    name="softmax_block_row",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["softmax_forward"],
    extra_cuda_cflags=["-O3"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self):
        super(ModelNew, self).__init__()
        self.softmax = softmax_module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.softmax.softmax_forward(x)
