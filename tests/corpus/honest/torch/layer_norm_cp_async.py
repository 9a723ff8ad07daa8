# task: torch_layer_norm
# style: cp_async_ptx
# what: persistent blocks prefetch the next row with cp.async while the current row is normalized
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r'''
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cstdint>

#define THREADS 256

__device__ __forceinline__ void copy_async16(float* shared, const float* global) {
    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" :: "r"(address), "l"(global) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait() { asm volatile("cp.async.wait_group %0;\n" :: "n"(N) : "memory"); }

__device__ __forceinline__ float sum_block(float v, float* scratch) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = v;
    __syncthreads();
    float s = 0.f;
    for (int i = 0; i < THREADS / 32; ++i) s += scratch[i];
    __syncthreads();
    return s;
}

__global__ void __launch_bounds__(THREADS) layer_norm_prefetch(const float* __restrict__ x, const float* __restrict__ gamma,
        const float* __restrict__ beta, float* __restrict__ y, int rows, int width, float eps) {
    extern __shared__ __align__(16) float buffer[];  // two rows
    __shared__ float scratch[THREADS / 32];
    auto fetch = [&](int row, int stage) {
        if (row < rows) {
            for (int c = threadIdx.x * 4; c < width; c += THREADS * 4) {
                copy_async16(buffer + stage * width + c, x + (size_t)row * width + c);
            }
        }
        commit();  // an empty group keeps the count of groups the same in the last round
    };
    int stage = 0;
    fetch(blockIdx.x, 0);
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        fetch(row + gridDim.x, stage ^ 1);
        wait<1>();
        __syncthreads();
        const float* v = buffer + stage * width;
        float s = 0.f;
        for (int c = threadIdx.x; c < width; c += THREADS) s += v[c];
        const float mean = sum_block(s, scratch) / width;
        float q = 0.f;
        for (int c = threadIdx.x; c < width; c += THREADS) { float d = v[c] - mean; q += d * d; }
        const float rstd = rsqrtf(sum_block(q, scratch) / width + eps);
        for (int c = threadIdx.x; c < width; c += THREADS) {
            y[(size_t)row * width + c] = (v[c] - mean) * rstd * gamma[c] + beta[c];
        }
        __syncthreads();  // the next round overwrites this stage
        stage ^= 1;
    }
}

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, double eps) {
    TORCH_CHECK(x.is_contiguous() && x.scalar_type() == at::kFloat);
    const int width = x.size(-1), rows = x.numel() / x.size(-1);
    TORCH_CHECK(width % 4 == 0, "cp.async copies 16 bytes at a time");
    auto y = torch::empty_like(x);
    const int bytes = 2 * width * sizeof(float);
    TORCH_CHECK(bytes <= 160 * 1024);
    C10_CUDA_CHECK(cudaFuncSetAttribute(layer_norm_prefetch, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    const int sms = at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
    const int blocks = std::min(rows, sms * 4);
    layer_norm_prefetch<<<blocks, THREADS, bytes, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), gamma.data_ptr<float>(), beta.data_ptr<float>(), y.data_ptr<float>(), rows, width, (float)eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
'''

module = load_inline(
    name='layer_norm_cp_async',
    cpp_sources='torch::Tensor layer_norm(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, double eps);',
    cuda_sources=cuda_source,
    functions=['layer_norm'],
    extra_cuda_cflags=['-O3', '--use_fast_math'],
)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return module.layer_norm(x.contiguous(), self.norm.weight, self.norm.bias, self.norm.eps)
