# task: torch_group_norm_swish
# style: load_inline_plain
# what: one block for each group; the group stays in shared memory between statistics and output
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#define BLOCK 1024

__device__ float block_sum(float v) {
    __shared__ float part[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
    __syncthreads();
    if (lane == 0) part[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = part[lane];
        for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
        if (lane == 0) part[0] = v;
    }
    __syncthreads();
    return part[0];
}

__global__ __launch_bounds__(BLOCK) void group_norm_swish_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ y,
    int groups, int channels_per_group, int pixels, float eps)
{
    // Groups up to 48 K values are cached in shared memory; a larger group is read again instead.
    extern __shared__ float cached[];
    const int n = channels_per_group * pixels;
    const int limit = 48 * 1024;
    const size_t base = (size_t)blockIdx.x * n;
    const int first_channel = (blockIdx.x % groups) * channels_per_group;

    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        float v = x[base + i];
        if (i < limit) cached[i] = v;
        sum += v;
    }
    const float mean = block_sum(sum) / n;
    float square = 0.0f;
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        float d = (i < limit ? cached[i] : x[base + i]) - mean;
        square += d * d;
    }
    const float rstd = rsqrtf(block_sum(square) / n + eps);
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        float v = i < limit ? cached[i] : x[base + i];
        int c = first_channel + i / pixels;
        v = (v - mean) * rstd * weight[c] + bias[c];
        y[base + i] = v / (1.0f + expf(-v));
    }
}

torch::Tensor group_norm_swish(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t groups, double eps) {
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    int batch = x.size(0), channels = x.size(1);
    int pixels = x.numel() / (batch * channels);
    int per_group = channels / groups;
    auto y = torch::empty_like(x);
    size_t bytes = sizeof(float) * std::min(per_group * pixels, 48 * 1024);
    C10_CUDA_CHECK(cudaFuncSetAttribute(group_norm_swish_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    group_norm_swish_kernel<<<batch * groups, BLOCK, bytes, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(),
        groups, per_group, pixels, (float)eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

cpp_source = """
torch::Tensor group_norm_swish(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t groups, double eps);
"""

group_norm = load_inline(
    name="group_norm_one_block",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["group_norm_swish"],
    extra_cuda_cflags=["-O3"],
    verbose=True,
)


class ModelNew(nn.Module):
    def __init__(self, channels, groups):
        super(ModelNew, self).__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        norm = self.norm
        return group_norm.group_norm_swish(x.contiguous(), norm.weight, norm.bias, norm.num_groups, norm.eps)
