# task: torch_group_norm_swish
# style: multi_kernel_pipeline
# what: chunk statistics, a merge by the parallel variance formula, then an elementwise kernel, all over one workspace
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CHUNKS = 8

cuda_source = (
    "#define CHUNKS " + str(CHUNKS) + "\n"
    + r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__device__ float reduce(float v, float* part) {
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    float s = 0.f;
    for (int i = 0; i < blockDim.x / 32; ++i) s += part[i];
    __syncthreads();
    return s;
}

// stats[group][chunk] = (mean, sum of squared deviations)
__global__ void chunk_statistics(const float* __restrict__ x, float2* __restrict__ stats, int size, int chunk) {
    __shared__ float part[32];
    const float* p = x + (size_t)blockIdx.y * size;
    const int begin = blockIdx.x * chunk, end = min(size, begin + chunk);
    const int count = max(end - begin, 0);
    float s = 0.f;
    for (int i = begin + threadIdx.x; i < end; i += blockDim.x) s += p[i];
    const float mean = count > 0 ? reduce(s, part) / count : reduce(s, part);
    float q = 0.f;
    for (int i = begin + threadIdx.x; i < end; i += blockDim.x) { float d = p[i] - mean; q += d * d; }
    q = reduce(q, part);
    if (threadIdx.x == 0) stats[blockIdx.y * CHUNKS + blockIdx.x] = make_float2(mean, q);
}

__global__ void merge_statistics(const float2* __restrict__ stats, float2* __restrict__ merged, int groups, int size, int chunk, float eps) {
    int g = blockIdx.x * blockDim.x + threadIdx.x;
    if (g >= groups) return;
    float mean = 0.f, m2 = 0.f, n = 0.f;
    for (int k = 0; k < CHUNKS; ++k) {
        float count = (float)max(min(size, (k + 1) * chunk) - k * chunk, 0);
        if (count == 0.f) continue;
        float2 s = stats[g * CHUNKS + k];
        float total = n + count, delta = s.x - mean;
        m2 += s.y + delta * delta * n * count / total;
        mean += delta * count / total;
        n = total;
    }
    merged[g] = make_float2(mean, rsqrtf(m2 / n + eps));
}

__global__ void normalize_swish(const float* __restrict__ x, const float2* __restrict__ merged, const float* __restrict__ w,
                                const float* __restrict__ b, float* __restrict__ y, int channels, int per_group, int pixels) {
    const int plane = blockIdx.x;                       // sample * channels + channel
    const int channel = plane % channels;
    const float2 m = merged[plane / per_group];         // groups are consecutive channels
    const float scale = m.y * w[channel];
    const float shift = b[channel];
    const float* src = x + (size_t)plane * pixels;
    float* dst = y + (size_t)plane * pixels;
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < pixels; i += gridDim.y * blockDim.x) {
        float v = (src[i] - m.x) * scale + shift;
        dst[i] = v / (1.f + expf(-v));
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor b, torch::Tensor stats, torch::Tensor merged, int64_t groups, double eps) {
    const int batch = x.size(0), channels = x.size(1), pixels = x.size(2) * x.size(3);
    const int per_group = channels / groups, size = per_group * pixels, total = batch * groups;
    const int chunk = (size + CHUNKS - 1) / CHUNKS;
    auto y = torch::empty_like(x);
    auto s = at::cuda::getCurrentCUDAStream();
    auto* sp = reinterpret_cast<float2*>(stats.data_ptr<float>());
    auto* mp = reinterpret_cast<float2*>(merged.data_ptr<float>());
    chunk_statistics<<<dim3(CHUNKS, total), 256, 0, s>>>(x.data_ptr<float>(), sp, size, chunk);
    merge_statistics<<<(total + 127) / 128, 128, 0, s>>>(sp, mp, total, size, chunk, (float)eps);
    normalize_swish<<<dim3(batch * channels, (pixels + 1023) / 1024), 256, 0, s>>>(
        x.data_ptr<float>(), mp, w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), channels, per_group, pixels);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
)

cpp_source = (
    "torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor b, torch::Tensor stats, "
    "torch::Tensor merged, int64_t groups, double eps);"
)

ext = load_inline(name="group_norm_welford_chunks", cpp_sources=cpp_source, cuda_sources=cuda_source, functions=["run"],
                  extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        self._workspace = {}

    def forward(self, x):
        x = x.contiguous()
        total = x.shape[0] * self.norm.num_groups
        key = (total, x.device)
        if key not in self._workspace:
            self._workspace[key] = (
                torch.empty(total * CHUNKS * 2, device=x.device, dtype=torch.float32),
                torch.empty(total * 2, device=x.device, dtype=torch.float32),
            )
        stats, merged = self._workspace[key]
        return ext.run(x, self.norm.weight, self.norm.bias, stats, merged, self.norm.num_groups, self.norm.eps)
