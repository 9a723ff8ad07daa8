# task: torch_conv_transpose
# style: library_with_fused_epilogue
# what: cuDNN without bias and without TF32, then one in-place kernel for both biases and tanh
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

cuda_src = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

/* In-place epilogue. One block row for each plane (sample, channel). */
__global__ void bias_tanh_kernel(float* y, const float* a, const float* b, int channels, int pixels) {
    const int plane = blockIdx.y;
    const float add = a[plane % channels] + b[plane % channels];
    float* p = y + (size_t)plane * pixels;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < pixels; i += gridDim.x * blockDim.x) p[i] = tanhf(p[i] + add);
}

void bias_tanh_(torch::Tensor y, torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(y.is_contiguous());
    const int channels = y.size(1), planes = y.size(0) * y.size(1), pixels = y.size(2) * y.size(3);
    dim3 grid((pixels + 1023) / 1024, planes);
    bias_tanh_kernel<<<grid, 256, 0, at::cuda::getCurrentCUDAStream()>>>(y.data_ptr<float>(), a.data_ptr<float>(), b.data_ptr<float>(), channels, pixels);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}
"""

ext = load_inline(
    name="conv_transpose_bias_tanh",
    cpp_sources="void bias_tanh_(torch::Tensor y, torch::Tensor a, torch::Tensor b);",
    cuda_sources=cuda_src,
    functions=["bias_tanh_"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose2d(in_channels, out_channels, kernel_size=4, stride=2, padding=1)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1) * 0.1)

    def forward(self, x):
        layer = self.conv_transpose
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
            y = F.conv_transpose2d(x, layer.weight, None, stride=2, padding=1)
        y = y.contiguous()
        ext.bias_tanh_(y, layer.bias.detach(), self.bias.detach())
        return y
