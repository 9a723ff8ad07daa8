# task: torch_softmax
# style: slower_than_reference
# what: right but slow, three separate kernels and two intermediate vectors
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

# A first, simple version: it skips every optimization, and is expected to lose against the library.
cuda_src = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void row_max(const float* x, float* m, int rows, int cols) {
    int r = blockIdx.x * blockDim.y + threadIdx.y;
    if (r >= rows) return;
    float v = -INFINITY;
    for (int c = threadIdx.x; c < cols; c += 32) v = fmaxf(v, x[(size_t)r * cols + c]);
    for (int o = 16; o > 0; o /= 2) v = fmaxf(v, __shfl_down_sync(0xffffffff, v, o));
    if (threadIdx.x == 0) m[r] = v;
}

__global__ void row_sum(const float* x, const float* m, float* s, int rows, int cols) {
    int r = blockIdx.x * blockDim.y + threadIdx.y;
    if (r >= rows) return;
    float v = 0.0f, top = m[r];
    for (int c = threadIdx.x; c < cols; c += 32) v += expf(x[(size_t)r * cols + c] - top);
    for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
    if (threadIdx.x == 0) s[r] = v;
}

__global__ void normalize(const float* x, const float* m, const float* s, float* y, size_t n, int cols) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        size_t r = i / cols;
        y[i] = expf(x[i] - m[r]) / s[r];
    }
}

torch::Tensor forward(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    auto m = torch::empty({rows}, x.options());
    auto s = torch::empty({rows}, x.options());
    auto y = torch::empty_like(x);
    cudaStream_t stream = at::cuda::getCurrentCUDAStream().stream();
    dim3 block(32, 8);
    int grid = (rows + 7) / 8;
    row_max<<<grid, block, 0, stream>>>(x.data_ptr<float>(), m.data_ptr<float>(), rows, cols);
    row_sum<<<grid, block, 0, stream>>>(x.data_ptr<float>(), m.data_ptr<float>(), s.data_ptr<float>(), rows, cols);
    size_t n = (size_t)rows * cols;
    normalize<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x.data_ptr<float>(), m.data_ptr<float>(), s.data_ptr<float>(),
                                                    y.data_ptr<float>(), n, cols);
    return y;
}
"""

ext = load_inline(name="softmax_three", cpp_sources="torch::Tensor forward(torch::Tensor x);", cuda_sources=cuda_src,
                  functions=["forward"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return ext.forward(x.contiguous())
