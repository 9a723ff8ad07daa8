# task: torch_elementwise_chain
# style: torch_library_in_cpp
# what: registers the operator in C++ with TORCH_LIBRARY and calls it by torch.ops; loaded with is_python_module=False
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/library.h>
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

namespace {

__global__ void swish_clamp_kernel(const float* __restrict__ x, const float* __restrict__ scale,
                                   const float* __restrict__ shift, float* __restrict__ y, int columns) {
    const size_t row = (size_t)blockIdx.y * columns;
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= columns) return;
    const float v = x[row + c] * scale[c] + shift[c];
    const float swish = v / (1.0f + expf(-v));
    y[row + c] = fminf(fmaxf(swish, -1.0f), 4.0f);
}

at::Tensor swish_clamp_cuda(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) {
    auto input = x.contiguous();
    auto y = at::empty_like(input);
    const int rows = input.size(0), columns = input.size(1);
    TORCH_CHECK(rows <= 65535, "too many rows for the second axis of the grid");
    dim3 grid((columns + 255) / 256, rows);
    swish_clamp_kernel<<<grid, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        input.data_ptr<float>(), scale.data_ptr<float>(), shift.data_ptr<float>(), y.data_ptr<float>(), columns);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

}  // namespace

TORCH_LIBRARY(corpus_elementwise, m) {
    m.def("swish_clamp(Tensor x, Tensor scale, Tensor shift) -> Tensor");
}

TORCH_LIBRARY_IMPL(corpus_elementwise, CUDA, m) {
    m.impl("swish_clamp", &swish_clamp_cuda);
}
"""

load_inline(
    name="corpus_elementwise_lib",
    cpp_sources="",
    cuda_sources=CUDA,
    is_python_module=False,
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(1 + 0.1 * torch.randn(columns))
        self.shift = nn.Parameter(0.1 * torch.randn(columns))

    def forward(self, x):
        return torch.ops.corpus_elementwise.swish_clamp(x, self.scale, self.shift)
