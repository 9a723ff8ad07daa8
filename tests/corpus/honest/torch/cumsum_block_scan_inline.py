# task: torch_cumulative_sum
# style: load_inline_plain
# what: one block for each row; warp scans by shuffles over tiles of 4 values per thread, with a running carry
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#define THREADS 256
#define ITEMS 4

__global__ __launch_bounds__(THREADS) void cumsum_rows(const float* __restrict__ x, float* __restrict__ y, int columns) {
    __shared__ float warp_total[THREADS / 32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    x += (size_t)blockIdx.x * columns;
    y += (size_t)blockIdx.x * columns;
    float carry = 0.0f;
    for (int tile = 0; tile < columns; tile += THREADS * ITEMS) {
        const int first = tile + threadIdx.x * ITEMS;
        float v[ITEMS];
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i) v[i] = first + i < columns ? x[first + i] : 0.0f;
        #pragma unroll
        for (int i = 1; i < ITEMS; ++i) v[i] += v[i - 1];
        float inclusive = v[ITEMS - 1];
        #pragma unroll
        for (int d = 1; d < 32; d <<= 1) {
            float n = __shfl_up_sync(0xffffffffu, inclusive, d);
            if (lane >= d) inclusive += n;
        }
        if (lane == 31) warp_total[warp] = inclusive;
        __syncthreads();
        float before = carry, all = 0.0f;
        #pragma unroll
        for (int w = 0; w < THREADS / 32; ++w) {
            if (w < warp) before += warp_total[w];
            all += warp_total[w];
        }
        const float left = __shfl_up_sync(0xffffffffu, inclusive, 1);
        if (lane > 0) before += left;
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            if (first + i < columns) y[first + i] = v[i] + before;
        }
        carry += all;
        __syncthreads();  // warp_total is written again in the next tile
    }
}

torch::Tensor cumsum(torch::Tensor x) {
    TORCH_CHECK(x.dim() == 2 && x.is_contiguous());
    auto y = torch::empty_like(x);
    cumsum_rows<<<x.size(0), THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

scan = load_inline(name="cumsum_block_scan", cpp_sources="torch::Tensor cumsum(torch::Tensor x);", cuda_sources=cuda_source,
                   functions=["cumsum"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        return scan.cumsum(x.contiguous())
