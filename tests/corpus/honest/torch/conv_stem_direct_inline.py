# task: torch_conv_stem
# style: load_inline_plain
# what: direct convolution with shared-memory tiles, normalization and ReLU fused, then a pooling kernel
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#define TILE 16
#define CO 16        // output channels of one block

// One block: TILE x TILE pixels, CO output channels; one thread for each pixel.
__global__ __launch_bounds__(TILE * TILE) void conv_bn_relu(const float* __restrict__ x, const float* __restrict__ w,
        const float* __restrict__ scale, const float* __restrict__ shift, float* __restrict__ y,
        int channels, int out_channels, int height, int width) {
    __shared__ float tile[TILE + 2][TILE + 2];
    __shared__ float weights[CO][9];
    const int groups = (out_channels + CO - 1) / CO;
    const int n = blockIdx.z / groups, first = (blockIdx.z % groups) * CO;
    const int tx = threadIdx.x % TILE, ty = threadIdx.x / TILE;
    const int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
    float acc[CO];
    #pragma unroll
    for (int i = 0; i < CO; ++i) acc[i] = 0.0f;
    for (int c = 0; c < channels; ++c) {
        const float* plane = x + ((size_t)n * channels + c) * height * width;
        for (int i = threadIdx.x; i < (TILE + 2) * (TILE + 2); i += TILE * TILE) {
            int r = row0 + i / (TILE + 2) - 1, q = col0 + i % (TILE + 2) - 1;
            tile[i / (TILE + 2)][i % (TILE + 2)] = (r >= 0 && r < height && q >= 0 && q < width) ? plane[(size_t)r * width + q] : 0.0f;
        }
        for (int i = threadIdx.x; i < CO * 9; i += TILE * TILE) {
            int o = first + i / 9;
            weights[i / 9][i % 9] = o < out_channels ? w[((size_t)o * channels + c) * 9 + i % 9] : 0.0f;
        }
        __syncthreads();
        float v[9];
        #pragma unroll
        for (int k = 0; k < 9; ++k) v[k] = tile[ty + k / 3][tx + k % 3];
        #pragma unroll
        for (int o = 0; o < CO; ++o) {
            #pragma unroll
            for (int k = 0; k < 9; ++k) acc[o] = fmaf(v[k], weights[o][k], acc[o]);
        }
        __syncthreads();
    }
    const int r = row0 + ty, q = col0 + tx;
    if (r < height && q < width) {
        for (int o = 0; o < CO && first + o < out_channels; ++o) {
            float v = acc[o] * scale[first + o] + shift[first + o];
            y[(((size_t)n * out_channels + first + o) * height + r) * width + q] = fmaxf(v, 0.0f);
        }
    }
}

// 3 x 3 maximum with stride 2 and padding 1; the values are at least zero, so that padding with zero is right.
__global__ void max_pool(const float* __restrict__ x, float* __restrict__ y, int planes, int height, int width, int oh, int ow) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (size_t)planes * oh * ow) return;
    int q = i % ow, r = (i / ow) % oh;
    const float* plane = x + i / ((size_t)ow * oh) * height * width;
    float best = 0.0f;
    for (int dr = -1; dr <= 1; ++dr) {
        for (int dq = -1; dq <= 1; ++dq) {
            int rr = 2 * r + dr, qq = 2 * q + dq;
            if (rr >= 0 && rr < height && qq >= 0 && qq < width) best = fmaxf(best, plane[(size_t)rr * width + qq]);
        }
    }
    y[i] = best;
}

torch::Tensor stem(torch::Tensor x, torch::Tensor w, torch::Tensor scale, torch::Tensor shift) {
    const int n = x.size(0), c = x.size(1), h = x.size(2), wd = x.size(3), o = w.size(0);
    auto mid = torch::empty({n, o, h, wd}, x.options());
    const int oh = (h - 1) / 2 + 1, ow = (wd - 1) / 2 + 1;
    auto y = torch::empty({n, o, oh, ow}, x.options());
    auto stream = at::cuda::getCurrentCUDAStream();
    dim3 grid((wd + TILE - 1) / TILE, (h + TILE - 1) / TILE, n * ((o + CO - 1) / CO));
    conv_bn_relu<<<grid, TILE * TILE, 0, stream>>>(x.data_ptr<float>(), w.data_ptr<float>(), scale.data_ptr<float>(), shift.data_ptr<float>(),
        mid.data_ptr<float>(), c, o, h, wd);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    size_t total = y.numel();
    max_pool<<<(unsigned)((total + 255) / 256), 256, 0, stream>>>(mid.data_ptr<float>(), y.data_ptr<float>(), n * o, h, wd, oh, ow);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

stem_ext = load_inline(
    name="conv_stem_direct",
    cpp_sources="torch::Tensor stem(torch::Tensor x, torch::Tensor w, torch::Tensor scale, torch::Tensor shift);",
    cuda_sources=cuda_source,
    functions=["stem"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x):
        norm = self.norm
        # Derived in each call, so that new weights and statistics take effect.
        scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        shift = norm.bias - norm.running_mean * scale
        return stem_ext.stem(x.contiguous(), self.conv.weight, scale, shift)
