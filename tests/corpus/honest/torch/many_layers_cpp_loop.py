# task: torch_many_layers
# style: cpp_loop_with_custom_kernel
# what: the loop over layers runs in C++ to save Python overhead; products by at::addmm_out, tanh and residual fused
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <vector>

__global__ void tanh_residual(const float* __restrict__ x, const float* __restrict__ z, float* __restrict__ y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + tanhf(z[i]);
}

torch::Tensor run_layers(torch::Tensor x, std::vector<torch::Tensor> weights, std::vector<torch::Tensor> biases) {
    const int n = x.numel();
    auto z = torch::empty_like(x);
    auto y = torch::empty_like(x);
    auto stream = at::cuda::getCurrentCUDAStream();
    const float* current = x.data_ptr<float>();
    torch::Tensor source = x;
    for (size_t i = 0; i < weights.size(); ++i) {
        at::addmm_out(z, biases[i], source, weights[i].t());
        // After the first layer the kernel works in place: each thread reads and writes its own element.
        tanh_residual<<<(n + 127) / 128, 128, 0, stream>>>(current, z.data_ptr<float>(), y.data_ptr<float>(), n);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        source = y;
        current = y.data_ptr<float>();
    }
    return y;
}
"""
source = source.replace("const float* __restrict__ x, const float* __restrict__ z, float* __restrict__ y, int n",
                        "const float* x, const float* z, float* y, int n")  # x and y may be the same

layers_ext = load_inline(
    name="many_layers_cpp_loop",
    cpp_sources="torch::Tensor run_layers(torch::Tensor x, std::vector<torch::Tensor> weights, std::vector<torch::Tensor> biases);",
    cuda_sources=source,
    functions=["run_layers"],
    extra_cflags=["-O3"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, width, layers):
        super(ModelNew, self).__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])

    @torch.no_grad()
    def forward(self, x):
        return layers_ext.run_layers(x.contiguous(), [l.weight for l in self.layers], [l.bias for l in self.layers])
