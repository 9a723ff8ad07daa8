# task: torch_residual_depthwise
# style: addmm_with_custom_kernel
# what: pointwise convolutions as products, biases and ReLU inside a CUDA depthwise kernel, residual through baddbmm
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

// y = relu(depthwise(relu(x + expand_bias)) + bias); padding is zero after the ReLU, so that borders are skipped.
__global__ void depthwise_relu(const float* __restrict__ x, const float* __restrict__ expand_bias, const float* __restrict__ w,
                               const float* __restrict__ bias, float* __restrict__ y, int channels, int height, int width) {
    extern __shared__ float plane[];
    const int c = blockIdx.x % channels, pixels = height * width;
    const float* src = x + (size_t)blockIdx.x * pixels;
    float* dst = y + (size_t)blockIdx.x * pixels;
    const float eb = expand_bias[c];
    for (int i = threadIdx.x; i < pixels; i += blockDim.x) plane[i] = fmaxf(src[i] + eb, 0.0f);
    float k[9];
    #pragma unroll
    for (int i = 0; i < 9; ++i) k[i] = w[c * 9 + i];
    const float b = bias[c];
    __syncthreads();
    for (int i = threadIdx.x; i < pixels; i += blockDim.x) {
        const int r = i / width, q = i % width;
        float s = b;
        #pragma unroll
        for (int t = 0; t < 9; ++t) {
            const int rr = r + t / 3 - 1, qq = q + t % 3 - 1;
            if (rr >= 0 && rr < height && qq >= 0 && qq < width) s = fmaf(plane[rr * width + qq], k[t], s);
        }
        dst[i] = fmaxf(s, 0.0f);
    }
}

torch::Tensor depthwise(torch::Tensor x, torch::Tensor expand_bias, torch::Tensor w, torch::Tensor bias, int64_t height, int64_t width) {
    // x: [batch, channels, height * width]
    TORCH_CHECK(x.is_contiguous() && x.size(2) == height * width);
    const size_t bytes = height * width * sizeof(float);
    TORCH_CHECK(bytes <= 48 * 1024, "a plane must fit into shared memory");
    auto y = torch::empty_like(x);
    depthwise_relu<<<x.size(0) * x.size(1), 256, bytes, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), expand_bias.data_ptr<float>(), w.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(),
        (int)x.size(1), (int)height, (int)width);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

cpp_source = "torch::Tensor depthwise(torch::Tensor x, torch::Tensor expand_bias, torch::Tensor w, torch::Tensor bias, int64_t height, int64_t width);"

depthwise_ext = load_inline(name="residual_depthwise_plane", cpp_sources=cpp_source, cuda_sources=cuda_source,
                            functions=["depthwise"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, channels, expansion):
        super().__init__()
        wide = channels * expansion
        self.expand = nn.Conv2d(channels, wide, kernel_size=1)
        self.depthwise = nn.Conv2d(wide, wide, kernel_size=3, padding=1, groups=wide)
        self.project = nn.Conv2d(wide, channels, kernel_size=1)

    def forward(self, x):
        n, c, h, w = x.shape
        flat = x.contiguous().view(n, c, h * w)
        wide = torch.matmul(self.expand.weight.flatten(1), flat)
        wide = depthwise_ext.depthwise(wide, self.expand.bias, self.depthwise.weight, self.depthwise.bias, h, w)
        base = flat + self.project.bias.view(1, -1, 1)
        weight = self.project.weight.flatten(1).expand(n, -1, -1)
        return torch.baddbmm(base, weight, wide).view(n, c, h, w)
