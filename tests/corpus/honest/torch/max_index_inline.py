# task: torch_max_index
# style: tuple_of_outputs
# what: value and index packed into one 64-bit key, reduced by warp shuffles; the smallest index wins ties
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <vector>

// Orders floats as unsigned integers; the inverted index makes the smaller index larger.
__device__ __forceinline__ unsigned long long make_key(float v, unsigned int index) {
    unsigned int u = __float_as_uint(v);
    u = (u & 0x80000000u) ? ~u : (u | 0x80000000u);
    return ((unsigned long long)u << 32) | (0xffffffffu - index);
}

__global__ __launch_bounds__(256) void row_max(const float* __restrict__ x, float* __restrict__ values, long long* __restrict__ indices, int columns) {
    __shared__ unsigned long long part[8];
    const float* row = x + (size_t)blockIdx.x * columns;
    unsigned long long best = 0;   // smaller than each key of a number
    for (int c = threadIdx.x; c < columns; c += 256) {
        unsigned long long k = make_key(row[c], c);
        best = k > best ? k : best;
    }
    for (int o = 16; o > 0; o >>= 1) {
        unsigned long long k = __shfl_down_sync(0xffffffffu, best, o);
        best = k > best ? k : best;
    }
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; ++w) best = part[w] > best ? part[w] : best;
        const unsigned int index = 0xffffffffu - (unsigned int)(best & 0xffffffffu);
        values[blockIdx.x] = row[index];
        indices[blockIdx.x] = index;
    }
}

std::vector<torch::Tensor> max_rows(torch::Tensor x) {
    TORCH_CHECK(x.dim() == 2 && x.size(1) > 0);
    auto values = torch::empty({x.size(0)}, x.options());
    auto indices = torch::empty({x.size(0)}, x.options().dtype(torch::kInt64));
    row_max<<<x.size(0), 256, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), values.data_ptr<float>(),
        reinterpret_cast<long long*>(indices.data_ptr<int64_t>()), x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {values, indices};
}
"""

ext = load_inline(name="max_index_rows", cpp_sources="std::vector<torch::Tensor> max_rows(torch::Tensor x);",
                  cuda_sources=cuda_source, functions=["max_rows"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        values, indices = ext.max_rows(x.contiguous())
        return values, indices
