# task: torch_conv_stem
# style: channels_last_cudnn
# what: cuDNN in channels_last with folded normalization and TF32 off; one kernel for shift, ReLU, pooling and layout
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

torch.backends.cudnn.benchmark = True
torch.backends.cudnn.allow_tf32 = False

cuda_source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

// x: NHWC in memory, y: NCHW. A tile of 32 channels x 32 output pixels passes through shared memory.
__global__ void shift_relu_pool(const float* __restrict__ x, const float* __restrict__ shift, float* __restrict__ y,
                                int C, int H, int W, int OH, int OW) {
    __shared__ float tile[32][33];
    const int n = blockIdx.z, c = blockIdx.y * 32 + threadIdx.x;
    for (int k = threadIdx.y; k < 32; k += blockDim.y) {
        const int p = blockIdx.x * 32 + k;
        float best = 0.0f;
        if (c < C && p < OH * OW) {
            const float s = shift[c];
            const int r = p / OW * 2, q = p % OW * 2;
            for (int rr = max(r - 1, 0); rr <= min(r + 1, H - 1); ++rr)
                for (int qq = max(q - 1, 0); qq <= min(q + 1, W - 1); ++qq)
                    best = fmaxf(best, x[(((size_t)n * H + rr) * W + qq) * C + c] + s);
        }
        tile[threadIdx.x][k] = best;
    }
    __syncthreads();
    for (int k = threadIdx.y; k < 32; k += blockDim.y) {
        const int cc = blockIdx.y * 32 + k, p = blockIdx.x * 32 + threadIdx.x;
        if (cc < C && p < OH * OW) y[((size_t)n * C + cc) * OH * OW + p] = tile[k][threadIdx.x];
    }
}

torch::Tensor shift_relu_pool_nhwc(torch::Tensor x, torch::Tensor shift) {
    TORCH_CHECK(x.is_contiguous(at::MemoryFormat::ChannelsLast), "channels_last expected");
    const int N = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3);
    const int OH = (H - 1) / 2 + 1, OW = (W - 1) / 2 + 1;
    auto y = torch::empty({N, C, OH, OW}, x.options().memory_format(at::MemoryFormat::Contiguous));
    dim3 grid((OH * OW + 31) / 32, (C + 31) / 32, N);
    shift_relu_pool<<<grid, dim3(32, 8), 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), shift.data_ptr<float>(), y.data_ptr<float>(), C, H, W, OH, OW);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

pool_ext = load_inline(
    name="shift_relu_pool_nhwc",
    cpp_sources="torch::Tensor shift_relu_pool_nhwc(torch::Tensor x, torch::Tensor shift);",
    cuda_sources=cuda_source,
    functions=["shift_relu_pool_nhwc"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x):
        norm = self.norm
        scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        shift = norm.bias - norm.running_mean * scale
        weight = (self.conv.weight * scale.view(-1, 1, 1, 1)).contiguous(memory_format=torch.channels_last)
        y = F.conv2d(x.contiguous(memory_format=torch.channels_last), weight, padding=1)
        return pool_ext.shift_relu_pool_nhwc(y.contiguous(memory_format=torch.channels_last), shift)
