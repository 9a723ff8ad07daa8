# task: torch_named_layers
# style: getattr_setattr_loops
# what: layers are set and read by name; the product is torch.mm, bias and ReLU are one fused kernel in place
import math
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DTYPE = "float"
BLOCK = 256
KERNEL_NAME = "bias_relu_kernel"

source = f"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void {KERNEL_NAME}({DTYPE}* y, const {DTYPE}* bias, int n, int width) {{
    for (int i = blockIdx.x * {BLOCK} + threadIdx.x; i < n; i += gridDim.x * {BLOCK}) {{
        {DTYPE} v = y[i] + bias[i % width];
        y[i] = v > 0 ? v : {DTYPE}(0);
    }}
}}

void bias_relu(torch::Tensor y, torch::Tensor bias) {{
    int n = y.numel();
    {KERNEL_NAME}<<<std::min((n + {BLOCK} - 1) / {BLOCK}, 4096), {BLOCK}, 0, at::cuda::getCurrentCUDAStream()>>>(
        y.data_ptr<{DTYPE}>(), bias.data_ptr<{DTYPE}>(), n, (int)y.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}}
"""

ext = load_inline(name="named_layers_" + KERNEL_NAME, cpp_sources="void bias_relu(torch::Tensor y, torch::Tensor bias);",
                  cuda_sources=source, functions=["bias_relu"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.depth = layers
        for i in range(layers):
            setattr(self, f"fc{i}", nn.Linear(width, width))

    def forward(self, x):
        for i in range(self.depth):
            layer = getattr(self, f"fc{i}")
            x = torch.mm(x, layer.weight.t())
            ext.bias_relu(x, layer.bias)  # in place on the product, never on the input
        return x
