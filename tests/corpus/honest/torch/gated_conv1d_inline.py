# task: torch_gated_conv1d
# style: load_inline_templates
# what: causal taps as a template parameter, each thread slides over 8 time steps in registers
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

template <int TAPS, int STEPS>
__global__ void gated_conv(const float* __restrict__ x, const float* __restrict__ gate, const float* __restrict__ w,
                           const float* __restrict__ bias, float* __restrict__ y, int channels, int length) {
    const int c = blockIdx.y % channels;
    const size_t base = (size_t)blockIdx.y * length;
    float k[TAPS];
    #pragma unroll
    for (int i = 0; i < TAPS; ++i) k[i] = w[c * TAPS + i];
    const float b = bias[c];
    // Neighbouring threads take neighbouring steps, so that accesses are coalesced.
    #pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        const int t = (blockIdx.x * STEPS + s) * blockDim.x + threadIdx.x;
        if (t < length) {
            float v = b;
            #pragma unroll
            for (int i = 0; i < TAPS; ++i) {
                const int from = t - (TAPS - 1) + i;
                if (from >= 0) v = fmaf(k[i], __ldg(x + base + from), v);
            }
            y[base + t] = v / (1.0f + expf(-v)) * gate[base + t];
        }
    }
}

template <int TAPS>
static void launch(const torch::Tensor& x, const torch::Tensor& gate, const torch::Tensor& w, const torch::Tensor& b, torch::Tensor& y) {
    constexpr int kSteps = 8, kThreads = 128;
    const int channels = x.size(1), length = x.size(2);
    dim3 grid((length + kSteps * kThreads - 1) / (kSteps * kThreads), x.size(0) * channels);
    gated_conv<TAPS, kSteps><<<grid, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), gate.data_ptr<float>(),
        w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), channels, length);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

torch::Tensor gated_conv1d(torch::Tensor x, torch::Tensor gate, torch::Tensor w, torch::Tensor b) {
    TORCH_CHECK(x.size(0) * x.size(1) <= 65535, "too many sequences");
    auto y = torch::empty_like(x);
    switch (w.size(2)) {
        case 2: launch<2>(x, gate, w, b, y); break;
        case 3: launch<3>(x, gate, w, b, y); break;
        case 4: launch<4>(x, gate, w, b, y); break;
        default: TORCH_CHECK(false, "unsupported number of taps: ", w.size(2));
    }
    return y;
}
"""

ext = load_inline(
    name="gated_conv1d",
    cpp_sources="torch::Tensor gated_conv1d(torch::Tensor x, torch::Tensor gate, torch::Tensor w, torch::Tensor b);",
    cuda_sources=source,
    functions=["gated_conv1d"],
    extra_cuda_cflags=["-O3", "-std=c++17"],
)


class ModelNew(nn.Module):
    def __init__(self, channels, taps):
        super().__init__()
        self.taps = taps
        self.conv = nn.Conv1d(channels, channels, kernel_size=taps, groups=channels)

    def forward(self, x, gate):
        return ext.gated_conv1d(x.contiguous(), gate.contiguous(), self.conv.weight, self.conv.bias)
