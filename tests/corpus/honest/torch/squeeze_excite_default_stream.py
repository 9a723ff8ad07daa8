# task: torch_squeeze_excite
# style: default_stream_launch
# what: CUDA mean and scale kernels without a stream argument; linear layers as nn.Linear; right on the default stream
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) CHECK_CUDA(x); CHECK_CONTIGUOUS(x)

__global__ void mean_kernel(const float* __restrict__ x, float* __restrict__ out, int pixels) {
    __shared__ float sdata[256];
    int tid = threadIdx.x;
    const float* plane = x + (size_t)blockIdx.x * pixels;
    float sum = 0.0f;
    for (int i = tid; i < pixels; i += blockDim.x) sum += plane[i];
    sdata[tid] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = sdata[0] / pixels;
}

__global__ void scale_kernel(const float* __restrict__ x, const float* __restrict__ s, float* __restrict__ out, int pixels) {
    float f = 1.0f / (1.0f + expf(-s[blockIdx.x]));
    for (int i = threadIdx.x; i < pixels; i += blockDim.x) {
        size_t k = (size_t)blockIdx.x * pixels + i;
        out[k] = x[k] * f;
    }
}

torch::Tensor mean_cuda(torch::Tensor x) {
    CHECK_INPUT(x);
    auto out = torch::empty({x.size(0), x.size(1)}, x.options());
    int planes = x.size(0) * x.size(1), pixels = x.size(2) * x.size(3);
    mean_kernel<<<planes, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), pixels);
    return out;
}

torch::Tensor scale_cuda(torch::Tensor x, torch::Tensor s) {
    CHECK_INPUT(x);
    CHECK_INPUT(s);
    auto out = torch::empty_like(x);
    int planes = x.size(0) * x.size(1), pixels = x.size(2) * x.size(3);
    scale_kernel<<<planes, 256>>>(x.data_ptr<float>(), s.data_ptr<float>(), out.data_ptr<float>(), pixels);
    return out;
}
"""

cpp_source = "torch::Tensor mean_cuda(torch::Tensor x); torch::Tensor scale_cuda(torch::Tensor x, torch::Tensor s);"

se = load_inline(name="squeeze_excite_plain", cpp_sources=cpp_source, cuda_sources=source, functions=["mean_cuda", "scale_cuda"], verbose=True)


class ModelNew(nn.Module):
    def __init__(self, channels, reduced):
        super(ModelNew, self).__init__()
        self.squeeze = nn.Linear(channels, reduced)
        self.excite = nn.Linear(reduced, channels)
        self.se = se

    def forward(self, x):
        x = x.contiguous()
        s = self.se.mean_cuda(x)
        s = self.excite(torch.relu(self.squeeze(s)))
        return self.se.scale_cuda(x, s)
