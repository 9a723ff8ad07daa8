// task: cuda_layernorm_gelu
// style: double_accumulators_one_pass
// what: one pass forms the sums of elements and squares in double precision, a second pass normalises and applies GELU

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;

struct Sums {
    double plain;
    double squared;
};

__device__ Sums operator+(Sums a, Sums b) {
    return {a.plain + b.plain, a.squared + b.squared};
}

__global__ void __launch_bounds__(THREADS) layernorm_gelu(const float *x, const float *gamma, const float *beta, float *y,
                                                          int64_t cols) {
    __shared__ Sums shared[THREADS / 32];
    const float *from = x + blockIdx.x * cols;
    float *to = y + blockIdx.x * cols;

    Sums own{0.0, 0.0};
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        const double value = from[col];
        own = own + Sums{value, value * value};
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        const Sums other{__shfl_down_sync(0xffffffffu, own.plain, offset),
                         __shfl_down_sync(0xffffffffu, own.squared, offset)};
        own = own + other;
    }
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = own;
    }
    __syncthreads();
    Sums all = shared[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) {
        all = all + shared[warp];
    }

    // The difference cancels, which double precision has digits for; rounding may still leave it just below zero.
    const double mean = all.plain / static_cast<double>(cols);
    const double variance = fmax(all.squared / static_cast<double>(cols) - mean * mean, 0.0);
    const float scale = static_cast<float>(1.0 / sqrt(variance + 1e-5));
    const float middle = static_cast<float>(mean);
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        const float n = (from[col] - middle) * scale * gamma[col] + beta[col];
        to[col] = 0.5f * n * (1.0f + tanhf(0.7978845608028654f * (n + 0.044715f * n * n * n)));
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    layernorm_gelu<<<static_cast<unsigned>(inputs[0].shape[0]), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
        static_cast<const float *>(inputs[2].data), static_cast<float *>(outputs[0].data), inputs[0].shape[1]);
    return cudaGetLastError();
}
