# task: torch_squeeze_excite
# style: load_inline_plain
# what: three CUDA kernels: means by warps, both layers in one block for each sample, vectorized scale
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void means(const float* __restrict__ x, float* __restrict__ mean, int planes, int pixels) {
    const int plane = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (plane >= planes) return;
    float s = 0.0f;
    for (int i = lane; i < pixels; i += 32) s += x[(size_t)plane * pixels + i];
    for (int o = 16; o > 0; o >>= 1) s += __shfl_down_sync(0xffffffffu, s, o);
    if (lane == 0) mean[plane] = s / pixels;
}

__global__ void excite(const float* __restrict__ mean, const float* __restrict__ w1, const float* __restrict__ b1, const float* __restrict__ w2,
                       const float* __restrict__ b2, float* __restrict__ scale, int channels, int reduced) {
    extern __shared__ float buffer[];   // channels means, then reduced hidden values
    float* hidden = buffer + channels;
    for (int i = threadIdx.x; i < channels; i += blockDim.x) buffer[i] = mean[(size_t)blockIdx.x * channels + i];
    __syncthreads();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int j = warp; j < reduced; j += warps) {
        float s = 0.0f;
        for (int i = lane; i < channels; i += 32) s = fmaf(buffer[i], w1[(size_t)j * channels + i], s);
        for (int o = 16; o > 0; o >>= 1) s += __shfl_down_sync(0xffffffffu, s, o);
        if (lane == 0) hidden[j] = fmaxf(s + b1[j], 0.0f);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < channels; i += blockDim.x) {
        float s = b2[i];
        for (int j = 0; j < reduced; ++j) s = fmaf(hidden[j], w2[(size_t)i * reduced + j], s);
        scale[(size_t)blockIdx.x * channels + i] = 1.0f / (1.0f + expf(-s));
    }
}

__global__ void apply_scale(const float* __restrict__ x, const float* __restrict__ scale, float* __restrict__ y, int pixels) {
    const float s = scale[blockIdx.x];
    const size_t base = (size_t)blockIdx.x * pixels;
    if (pixels % 4 == 0) {
        const float4* in = reinterpret_cast<const float4*>(x + base);
        float4* out = reinterpret_cast<float4*>(y + base);
        for (int i = threadIdx.x; i < pixels / 4; i += blockDim.x) {
            const float4 v = in[i];
            out[i] = make_float4(v.x * s, v.y * s, v.z * s, v.w * s);
        }
    } else {
        for (int i = threadIdx.x; i < pixels; i += blockDim.x) y[base + i] = x[base + i] * s;
    }
}

torch::Tensor squeeze_excite(torch::Tensor x, torch::Tensor w1, torch::Tensor b1, torch::Tensor w2, torch::Tensor b2) {
    const int n = x.size(0), c = x.size(1), pixels = x.size(2) * x.size(3), reduced = w1.size(0);
    auto mean = torch::empty({n, c}, x.options());
    auto scale = torch::empty({n, c}, x.options());
    auto y = torch::empty_like(x);
    auto stream = at::cuda::getCurrentCUDAStream();
    means<<<(n * c + 7) / 8, 256, 0, stream>>>(x.data_ptr<float>(), mean.data_ptr<float>(), n * c, pixels);
    excite<<<n, 256, (c + reduced) * sizeof(float), stream>>>(mean.data_ptr<float>(), w1.data_ptr<float>(), b1.data_ptr<float>(),
        w2.data_ptr<float>(), b2.data_ptr<float>(), scale.data_ptr<float>(), c, reduced);
    apply_scale<<<n * c, 256, 0, stream>>>(x.data_ptr<float>(), scale.data_ptr<float>(), y.data_ptr<float>(), pixels);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

ext = load_inline(
    name="squeeze_excite_inline",
    cpp_sources="torch::Tensor squeeze_excite(torch::Tensor x, torch::Tensor w1, torch::Tensor b1, torch::Tensor w2, torch::Tensor b2);",
    cuda_sources=cuda_source,
    functions=["squeeze_excite"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, channels, reduced):
        super().__init__()
        self.squeeze = nn.Linear(channels, reduced)
        self.excite = nn.Linear(reduced, channels)

    def forward(self, x):
        return ext.squeeze_excite(x.contiguous(), self.squeeze.weight, self.squeeze.bias, self.excite.weight, self.excite.bias)
