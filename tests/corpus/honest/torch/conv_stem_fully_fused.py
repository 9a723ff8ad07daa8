# task: torch_conv_stem
# style: single_fused_kernel
# what: convolution, normalization, ReLU and pooling in one kernel; each block computes the halo of its pooled tile itself
import string

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

TEMPLATE = string.Template(
    r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int POOLED = $pooled;                 // pooled tile edge
constexpr int MID = 2 * POOLED + 1;             // edge of the convolution tile that it needs
constexpr int IN = MID + 2;
constexpr int CO = $channels;                   // output channels of one block
constexpr int THREADS = $threads;
constexpr int PIXELS = (MID * MID + THREADS - 1) / THREADS;

__global__ void __launch_bounds__(THREADS) stem_kernel(const float* __restrict__ x, const float* __restrict__ w,
        const float* __restrict__ scale, const float* __restrict__ shift, float* __restrict__ y,
        int C, int O, int H, int W, int OH, int OW) {
    __shared__ float in[IN * IN];
    __shared__ float ws[CO * 9];
    __shared__ float mid[CO][MID * MID];
    const int groups = (O + CO - 1) / CO;
    const int n = blockIdx.z / groups, first = (blockIdx.z % groups) * CO;
    const int pr0 = blockIdx.y * POOLED, pq0 = blockIdx.x * POOLED;
    const int mr0 = 2 * pr0 - 1, mq0 = 2 * pq0 - 1;
    float acc[PIXELS][CO] = {};
    for (int c = 0; c < C; ++c) {
        const float* plane = x + ((size_t)n * C + c) * H * W;
        for (int i = threadIdx.x; i < IN * IN; i += THREADS) {
            const int r = mr0 - 1 + i / IN, q = mq0 - 1 + i % IN;
            in[i] = (r >= 0 && r < H && q >= 0 && q < W) ? plane[(size_t)r * W + q] : 0.0f;
        }
        for (int i = threadIdx.x; i < CO * 9; i += THREADS) {
            const int o = first + i / 9;
            ws[i] = o < O ? w[((size_t)o * C + c) * 9 + i % 9] : 0.0f;
        }
        __syncthreads();
        #pragma unroll
        for (int p = 0; p < PIXELS; ++p) {
            const int i = threadIdx.x + p * THREADS;
            if (i < MID * MID) {
                const float* window = in + (i / MID) * IN + i % MID;
                #pragma unroll
                for (int k = 0; k < 9; ++k) {
                    const float v = window[(k / 3) * IN + k % 3];
                    #pragma unroll
                    for (int o = 0; o < CO; ++o) acc[p][o] = fmaf(v, ws[o * 9 + k], acc[p][o]);
                }
            }
        }
        __syncthreads();
    }
    #pragma unroll
    for (int p = 0; p < PIXELS; ++p) {
        const int i = threadIdx.x + p * THREADS;
        if (i < MID * MID) {
            const int r = mr0 + i / MID, q = mq0 + i % MID;
            const bool inside = r >= 0 && r < H && q >= 0 && q < W;
            #pragma unroll
            for (int o = 0; o < CO; ++o) {
                // Values outside of the image must not win the maximum; zero never wins against ReLU outputs.
                mid[o][i] = (inside && first + o < O) ? fmaxf(fmaf(acc[p][o], scale[first + o], shift[first + o]), 0.0f) : 0.0f;
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < CO * POOLED * POOLED; i += THREADS) {
        const int o = i / (POOLED * POOLED), pr = i / POOLED % POOLED, pq = i % POOLED;
        const int r = pr0 + pr, q = pq0 + pq;
        if (first + o < O && r < OH && q < OW) {
            float best = 0.0f;
            for (int k = 0; k < 9; ++k) best = fmaxf(best, mid[o][(2 * pr + k / 3) * MID + 2 * pq + k % 3]);
            y[(((size_t)n * O + first + o) * OH + r) * OW + q] = best;
        }
    }
}

torch::Tensor stem(torch::Tensor x, torch::Tensor w, torch::Tensor scale, torch::Tensor shift) {
    const int N = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3), O = w.size(0);
    const int OH = (H + 1) / 2, OW = (W + 1) / 2;
    auto y = torch::empty({N, O, OH, OW}, x.options());
    dim3 grid((OW + POOLED - 1) / POOLED, (OH + POOLED - 1) / POOLED, N * ((O + CO - 1) / CO));
    stem_kernel<<<grid, THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), w.data_ptr<float>(),
        scale.data_ptr<float>(), shift.data_ptr<float>(), y.data_ptr<float>(), C, O, H, W, OH, OW);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
)

SETTINGS = {"pooled": 8, "channels": 16, "threads": 160}

ext = load_inline(
    name="conv_stem_fully_fused",
    cpp_sources="torch::Tensor stem(torch::Tensor x, torch::Tensor w, torch::Tensor scale, torch::Tensor shift);",
    cuda_sources=TEMPLATE.substitute(SETTINGS),
    functions=["stem"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x):
        scale = self.norm.weight * torch.rsqrt(self.norm.running_var + self.norm.eps)
        shift = self.norm.bias - self.norm.running_mean * scale
        return ext.stem(x.contiguous(), self.conv.weight.contiguous(), scale, shift)
