# task: torch_softmax
# style: cooperative_groups
# what: reduces with cooperative groups tiles and keeps the row in dynamic shared memory
import functools
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

__global__ void softmax_shared(const float* __restrict__ x, float* __restrict__ y, int columns)
{
    extern __shared__ float row[];
    __shared__ float partial[32];
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    const int warps = warp.meta_group_size();
    const float* in = x + (size_t)blockIdx.x * columns;
    float* out = y + (size_t)blockIdx.x * columns;

    float m = -INFINITY;
    for (int i = block.thread_rank(); i < columns; i += block.size()) {
        float v = in[i];
        row[i] = v;
        m = fmaxf(m, v);
    }
    m = cg::reduce(warp, m, cg::greater<float>());
    if (warp.thread_rank() == 0) partial[warp.meta_group_rank()] = m;
    block.sync();
    m = partial[0];
    for (int i = 1; i < warps; ++i) m = fmaxf(m, partial[i]);
    block.sync();

    float s = 0.0f;
    for (int i = block.thread_rank(); i < columns; i += block.size()) {
        float e = expf(row[i] - m);
        row[i] = e;
        s += e;
    }
    s = cg::reduce(warp, s, cg::plus<float>());
    if (warp.thread_rank() == 0) partial[warp.meta_group_rank()] = s;
    block.sync();
    s = 0.0f;
    for (int i = 0; i < warps; ++i) s += partial[i];

    for (int i = block.thread_rank(); i < columns; i += block.size()) out[i] = row[i] / s;
}

torch::Tensor softmax(torch::Tensor x)
{
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.dim() == 2, "expected a contiguous CUDA matrix");
    int rows = x.size(0), columns = x.size(1);
    size_t bytes = columns * sizeof(float);
    TORCH_CHECK(bytes <= 200 * 1024, "a row must fit into shared memory");
    auto y = torch::empty_like(x);
    if (bytes > 48 * 1024 - 256) {
        C10_CUDA_CHECK(cudaFuncSetAttribute(softmax_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    }
    softmax_shared<<<rows, 256, bytes, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), columns);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""


@functools.lru_cache(maxsize=None)
def extension():
    return load_inline(
        name="softmax_cg",
        cpp_sources="torch::Tensor softmax(torch::Tensor x);",
        cuda_sources=source,
        functions=["softmax"],
        extra_cuda_cflags=["-O3", "-std=c++17"],
    )


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        extension()  # compile at construction, so that the first call is not slow

    def forward(self, x):
        return extension().softmax(x.contiguous())
