# task: torch_axis_sum
# style: last_block_counter
# what: the last block of each column tile adds the partial sums; counters reset themselves for the next call
import os
import sys
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

os.environ.setdefault("MAX_JOBS", "2")

source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) sum_axis_kernel(
    const float* __restrict__ x, float* partial, unsigned int* counters, float* __restrict__ out,
    int length, int width, int chunk)
{
    __shared__ bool is_last;
    const int column = blockIdx.x * kThreads + threadIdx.x;
    const int parts = gridDim.y;
    const size_t batch = blockIdx.z;
    if (column < width) {
        const int begin = blockIdx.y * chunk, end = min(length, begin + chunk);
        const float* p = x + (batch * length + begin) * width + column;
        float a = 0.f, b = 0.f, c = 0.f, d = 0.f;
        int i = begin;
        for (; i + 3 < end; i += 4, p += 4 * (size_t)width) {
            a += p[0];
            b += p[width];
            c += p[2 * (size_t)width];
            d += p[3 * (size_t)width];
        }
        for (; i < end; ++i, p += width) a += *p;  // tail
        partial[(batch * parts + blockIdx.y) * width + column] = (a + b) + (c + d);
    }
    // Partial sums of this block become visible before the counter is raised.
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned int* counter = counters + batch * gridDim.x + blockIdx.x;
        is_last = atomicInc(counter, parts - 1) == parts - 1;  // wraps to zero by itself
    }
    __syncthreads();
    if (is_last && column < width) {
        __threadfence();
        float s = 0.f;
        for (int k = 0; k < parts; ++k) s += __ldcg(partial + (batch * parts + k) * width + column);
        out[batch * width + column] = s;
    }
}

torch::Tensor sum_axis(torch::Tensor x, torch::Tensor partial, torch::Tensor counters) {
    const int batch = x.size(0), length = x.size(1), width = x.size(2);
    const int parts = partial.size(1);
    auto out = torch::empty({batch, width}, x.options());
    dim3 grid((width + kThreads - 1) / kThreads, parts, batch);
    TORCH_CHECK(counters.numel() == (int64_t)grid.x * batch, "counters have the wrong size");
    sum_axis_kernel<<<grid, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), partial.data_ptr<float>(), reinterpret_cast<unsigned int*>(counters.data_ptr<int>()),
        out.data_ptr<float>(), length, width, (length + parts - 1) / parts);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

_module = load_inline(
    name="axis_sum_last_block",
    cpp_sources="torch::Tensor sum_axis(torch::Tensor x, torch::Tensor partial, torch::Tensor counters);",
    cuda_sources=source,
    functions=["sum_axis"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    PARTS = 6

    def __init__(self):
        super().__init__()
        self._buffers_by_shape = {}

    def _buffers_for(self, x):
        key = (tuple(x.shape), x.device)
        if key not in self._buffers_by_shape:
            batch, _, width = x.shape
            tiles = (width + 255) // 256
            partial = torch.empty(batch, self.PARTS, width, device=x.device)
            counters = torch.zeros(batch * tiles, dtype=torch.int32, device=x.device)
            self._buffers_by_shape[key] = (partial, counters)
        return self._buffers_by_shape[key]

    def forward(self, x):
        x = x.contiguous()
        return _module.sum_axis(x, *self._buffers_for(x))
