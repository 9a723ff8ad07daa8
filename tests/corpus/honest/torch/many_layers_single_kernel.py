# task: torch_many_layers
# style: single_fused_kernel
# what: rows are independent, so one block takes 4 rows through all layers; the weights are stacked again at each call
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int ROWS = 4;

// weights: [layers, width (in), width (out)], so that neighbouring threads read neighbouring values
__global__ void chain_kernel(const float* __restrict__ x, const float* __restrict__ weights, const float* __restrict__ biases,
                             float* __restrict__ y, int rows, int width, int layers) {
    extern __shared__ float state[];            // two buffers of ROWS x width
    float* current = state;
    float* next = state + ROWS * width;
    const int first = blockIdx.x * ROWS;
    for (int i = threadIdx.x; i < ROWS * width; i += blockDim.x) {
        const int r = first + i / width;
        current[i] = r < rows ? x[(size_t)r * width + i % width] : 0.0f;
    }
    __syncthreads();
    for (int layer = 0; layer < layers; ++layer) {
        const float* w = weights + (size_t)layer * width * width;
        for (int j = threadIdx.x; j < width; j += blockDim.x) {
            float acc[ROWS];
            const float b = biases[layer * width + j];
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) acc[r] = b;
            #pragma unroll 8
            for (int k = 0; k < width; ++k) {
                const float v = __ldg(w + (size_t)k * width + j);
                #pragma unroll
                for (int r = 0; r < ROWS; ++r) acc[r] = fmaf(current[r * width + k], v, acc[r]);
            }
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) next[r * width + j] = current[r * width + j] + tanhf(acc[r]);
        }
        __syncthreads();
        float* t = current; current = next; next = t;
    }
    for (int i = threadIdx.x; i < ROWS * width; i += blockDim.x) {
        const int r = first + i / width;
        if (r < rows) y[(size_t)r * width + i % width] = current[i];
    }
}

torch::Tensor chain(torch::Tensor x, torch::Tensor weights, torch::Tensor biases) {
    const int rows = x.size(0), width = x.size(1), layers = weights.size(0);
    auto y = torch::empty_like(x);
    const size_t bytes = 2 * ROWS * width * sizeof(float);
    TORCH_CHECK(bytes <= 48 * 1024, "width is too large for the default shared memory");
    chain_kernel<<<(rows + ROWS - 1) / ROWS, 256, bytes, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), weights.data_ptr<float>(), biases.data_ptr<float>(), y.data_ptr<float>(), rows, width, layers);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

ext = load_inline(
    name="many_layers_single_kernel",
    cpp_sources="torch::Tensor chain(torch::Tensor x, torch::Tensor weights, torch::Tensor biases);",
    cuda_sources=cuda_source,
    functions=["chain"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])

    def forward(self, x):
        weights = torch.stack([layer.weight.t() for layer in self.layers]).contiguous()
        biases = torch.stack([layer.bias for layer in self.layers])
        return ext.chain(x.contiguous(), weights, biases)
