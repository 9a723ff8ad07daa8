# task: torch_softmax
# style: load_inline_templates
# what: picks a C++ template by the number of columns and uses if constexpr for the reductions
import os
import math
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"
os.environ.setdefault("MAX_JOBS", "4")

CUDA_SRC = r'''
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

#define CUDA_CHECK(call)                                                                  \
    do {                                                                                  \
        cudaError_t err__ = (call);                                                       \
        if (err__ != cudaSuccess) {                                                       \
            printf("CUDA error %s at %s:%d\n", cudaGetErrorString(err__), __FILE__, __LINE__); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

enum class Op { kMax, kSum };

template <Op OP>
__device__ __forceinline__ float combine(float a, float b) {
    if constexpr (OP == Op::kMax) { return fmaxf(a, b); } else { return a + b; }
}

template <Op OP, int THREADS>
__device__ float reduce_block(float v) {
    __shared__ float part[THREADS / 32];
    __shared__ float result;
    #pragma unroll
    for (int o = 16; o; o >>= 1) v = combine<OP>(v, __shfl_xor_sync(0xffffffff, v, o));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        float r = part[0];
        for (int i = 1; i < THREADS / 32; ++i) r = combine<OP>(r, part[i]);
        result = r;
    }
    __syncthreads();
    return result;
}

template <int THREADS, int ITEMS>
__global__ __launch_bounds__(THREADS) void row_softmax(const float* __restrict__ in, float* __restrict__ out, int n) {
    const size_t row = blockIdx.x;
    const float* src = in + row * n;
    float* dst = out + row * n;
    float item[ITEMS];
    float m = -INFINITY;
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        int c = threadIdx.x + i * THREADS;
        item[i] = c < n ? __ldg(src + c) : -INFINITY;
        m = fmaxf(m, item[i]);
    }
    m = reduce_block<Op::kMax, THREADS>(m);
    float s = 0.f;
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        item[i] = expf(item[i] - m);  // exp(-inf) is zero for the padding
        s += item[i];
    }
    s = reduce_block<Op::kSum, THREADS>(s);
    const float r = __frcp_rn(s);
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        int c = threadIdx.x + i * THREADS;
        if (c < n) dst[c] = item[i] * r;
    }
}

torch::Tensor row_softmax_forward(const torch::Tensor& x_in) {
    const at::cuda::CUDAGuard guard(x_in.device());
    auto x = x_in.contiguous();
    TORCH_CHECK(x.dtype() == torch::kFloat, "float32 expected");
    const int rows = static_cast<int>(x.size(0)), n = static_cast<int>(x.size(1));
    TORCH_CHECK(n <= 32768, "at most 32768 columns, got ", n);
    auto y = torch::empty_like(x);
    cudaStream_t s = at::cuda::getCurrentCUDAStream();
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    if (n <= 1024) row_softmax<128, 8><<<rows, 128, 0, s>>>(in, out, n);
    else if (n <= 4096) row_softmax<256, 16><<<rows, 256, 0, s>>>(in, out, n);
    else if (n <= 8192) row_softmax<512, 16><<<rows, 512, 0, s>>>(in, out, n);
    else row_softmax<1024, 32><<<rows, 1024, 0, s>>>(in, out, n);
    CUDA_CHECK(cudaGetLastError());
    return y;
}
'''

_ext = load_inline(
    name="softmax_template_dispatch_ext",
    cpp_sources=["torch::Tensor row_softmax_forward(const torch::Tensor& x_in);"],
    cuda_sources=[CUDA_SRC],
    functions=["row_softmax_forward"],
    extra_cflags=["-O3"],
    extra_cuda_cflags=["-O3", "-std=c++17", "--ptxas-options=-v", "-lineinfo"],
)


class ModelNew(nn.Module):
    """Softmax over the last axis of a matrix."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        return _ext.row_softmax_forward(x)
