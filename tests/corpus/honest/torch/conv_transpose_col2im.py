# task: torch_conv_transpose
# style: cublas_with_custom_epilogue
# what: one product makes the columns of all taps, a kernel gathers four of them for each output and applies tanh
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

torch.set_float32_matmul_precision("highest")

SRC = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

// columns: [batch, O, 4, 4, H, W]
__global__ void gather_tanh(const float* __restrict__ columns, const float* __restrict__ bias, const float* __restrict__ extra,
                            float* __restrict__ y, long long total, int O, int H, int W) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    const int OW = 2 * W, OH = 2 * H;
    const int q = i % OW, r = i / OW % OH;
    const long long plane = i / ((long long)OW * OH);   // sample * O + channel
    float s = bias[plane % O] + extra[plane % O];
    #pragma unroll
    for (int a = 0; a < 2; ++a) {
        #pragma unroll
        for (int b = 0; b < 2; ++b) {
            const int kh = (r + 1) % 2 + 2 * a, kw = (q + 1) % 2 + 2 * b;
            const int ih = (r + 1 - kh) / 2, iw = (q + 1 - kw) / 2;
            // r + 1 - kh is even, so that the division is exact; it is negative only for ih = -1.
            if (r + 1 - kh >= 0 && ih < H && q + 1 - kw >= 0 && iw < W) {
                s += columns[((plane * 4 + kh) * 4 + kw) * H * W + (long long)ih * W + iw];
            }
        }
    }
    y[i] = tanhf(s);
}

torch::Tensor gather(torch::Tensor columns, torch::Tensor bias, torch::Tensor extra, int64_t H, int64_t W) {
    const int64_t N = columns.size(0), O = bias.size(0);
    auto y = torch::empty({N, O, 2 * H, 2 * W}, columns.options());
    const long long total = y.numel();
    gather_tanh<<<(unsigned)((total + 255) / 256), 256, 0, at::cuda::getCurrentCUDAStream()>>>(columns.data_ptr<float>(),
        bias.data_ptr<float>(), extra.data_ptr<float>(), y.data_ptr<float>(), total, (int)O, (int)H, (int)W);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

col2im = load_inline("conv_transpose_col2im",
                     "torch::Tensor gather(torch::Tensor columns, torch::Tensor bias, torch::Tensor extra, int64_t H, int64_t W);",
                     SRC, functions=["gather"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose2d(in_channels, out_channels, kernel_size=4, stride=2, padding=1)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1) * 0.1)

    def forward(self, x):
        n, c, h, w = x.shape
        weight = self.conv_transpose.weight.reshape(c, -1).t()  # [O * 16, C]
        columns = torch.matmul(weight, x.reshape(n, c, h * w))
        return col2im.gather(columns.contiguous(), self.conv_transpose.bias, self.bias, h, w)
