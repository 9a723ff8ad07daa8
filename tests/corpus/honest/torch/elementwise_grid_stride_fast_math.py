# task: torch_elementwise_chain
# style: use_fast_math
# what: float4 grid-stride loop with a scalar tail; compiled with --use_fast_math, the error stays near one ulp
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r'''
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

__device__ __forceinline__ float step(float x, float scale, float shift) {
    float v = fmaf(x, scale, shift);
    // expf of a large positive argument is infinity, and the quotient is then zero, as in the reference.
    float s = v / (1.0f + __expf(-v));
    return fminf(fmaxf(s, -1.0f), 4.0f);
}

__global__ void chain_vec4(const float4* __restrict__ x, const float4* __restrict__ scale, const float4* __restrict__ shift,
                           float4* __restrict__ y, size_t vectors, unsigned int columns4) {
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += stride) {
        const unsigned int c = i % columns4;
        const float4 v = __ldcs(x + i), a = __ldg(scale + c), b = __ldg(shift + c);
        __stcs(y + i, make_float4(step(v.x, a.x, b.x), step(v.y, a.y, b.y), step(v.z, a.z, b.z), step(v.w, a.w, b.w)));
    }
}

__global__ void chain_scalar(const float* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ shift,
                             float* __restrict__ y, size_t n, unsigned int columns) {
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        const unsigned int c = i % columns;
        y[i] = step(x[i], scale[c], shift[c]);
    }
}

torch::Tensor chain(torch::Tensor x, torch::Tensor scale, torch::Tensor shift) {
    c10::cuda::CUDAGuard guard(x.device());
    auto y = torch::empty_like(x);
    const size_t n = x.numel();
    const unsigned int columns = x.size(-1);
    auto stream = at::cuda::getCurrentCUDAStream();
    const int blocks = at::cuda::getCurrentDeviceProperties()->multiProcessorCount * 16;
    if (columns % 4 == 0) {
        chain_vec4<<<blocks, 256, 0, stream>>>((const float4*)x.data_ptr<float>(), (const float4*)scale.data_ptr<float>(),
            (const float4*)shift.data_ptr<float>(), (float4*)y.data_ptr<float>(), n / 4, columns / 4);
    } else {
        chain_scalar<<<blocks, 256, 0, stream>>>(x.data_ptr<float>(), scale.data_ptr<float>(), shift.data_ptr<float>(),
            y.data_ptr<float>(), n, columns);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
'''

chain_module = load_inline(
    name="elementwise_chain_fast",
    cpp_sources="torch::Tensor chain(torch::Tensor x, torch::Tensor scale, torch::Tensor shift);",
    cuda_sources=cuda_source,
    functions=["chain"],
    extra_cflags=["-O3"],
    extra_cuda_cflags=["-O3", "--use_fast_math", "-std=c++17"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super(ModelNew, self).__init__()
        self.scale = nn.Parameter(1 + 0.1 * torch.randn(columns))
        self.shift = nn.Parameter(0.1 * torch.randn(columns))

    def forward(self, x):
        return chain_module.chain(x.contiguous(), self.scale, self.shift)
