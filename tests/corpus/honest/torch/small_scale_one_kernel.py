# task: torch_small_scale
# style: very_short_kernel
# what: one kernel below 5 microseconds; float4 with a scalar path for other widths
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void scale_relu4(const float4* __restrict__ x, const float4* __restrict__ s, const float4* __restrict__ t, float4* __restrict__ y, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float4 v = x[i], a = s[i % columns], b = t[i % columns];
        y[i] = make_float4(fmaxf(v.x * a.x + b.x, 0.f), fmaxf(v.y * a.y + b.y, 0.f), fmaxf(v.z * a.z + b.z, 0.f), fmaxf(v.w * a.w + b.w, 0.f));
    }
}

__global__ void scale_relu1(const float* __restrict__ x, const float* __restrict__ s, const float* __restrict__ t, float* __restrict__ y, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i] * s[i % columns] + t[i % columns], 0.f);
}

torch::Tensor scale_relu(torch::Tensor x, torch::Tensor s, torch::Tensor t) {
    auto y = torch::empty_like(x);
    int n = x.numel(), columns = x.size(-1);
    auto stream = at::cuda::getCurrentCUDAStream();
    if (columns % 4 == 0) {
        scale_relu4<<<(n / 4 + 127) / 128, 128, 0, stream>>>((const float4*)x.data_ptr<float>(), (const float4*)s.data_ptr<float>(),
            (const float4*)t.data_ptr<float>(), (float4*)y.data_ptr<float>(), n / 4, columns / 4);
    } else {
        scale_relu1<<<(n + 127) / 128, 128, 0, stream>>>(x.data_ptr<float>(), s.data_ptr<float>(), t.data_ptr<float>(), y.data_ptr<float>(), n, columns);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

ext = load_inline(name="small_scale_relu", cpp_sources="torch::Tensor scale_relu(torch::Tensor x, torch::Tensor s, torch::Tensor t);",
                  cuda_sources=cuda_source, functions=["scale_relu"])


class ModelNew(nn.Module):
    def __init__(self, columns):
        super(ModelNew, self).__init__()
        self.scale = nn.Parameter(1 + 0.1 * torch.randn(columns))
        self.shift = nn.Parameter(0.1 * torch.randn(columns))

    def forward(self, x):
        return ext.scale_relu(x.contiguous(), self.scale, self.shift)
