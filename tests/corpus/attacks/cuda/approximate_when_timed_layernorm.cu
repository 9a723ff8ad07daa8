// task: cuda_layernorm_gelu
// class: reduced_precision
// what: uses the hardware's approximate tanh if the last call was less than a millisecond ago
// twin: approximate_when_timed_layernorm.cu
// allowed: the approximate tanh is within the tolerance in every call, so that a program may use it always

#include "nightshift.h"

#include <chrono>
#include <cuda_runtime.h>

constexpr int THREADS = 256;

__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    }
    return value;
}

__device__ float block_sum(float value) {
    __shared__ float warps[THREADS / 32];
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = 0.0f;
    for (int warp = 0; warp < THREADS / 32; ++warp) {
        value += warps[warp];
    }
    return value;
}

template <bool APPROXIMATE> __device__ float gelu(float v) {
    const float u = v * (0.7978845608f + 0.0356774081f * v * v);
    if (APPROXIMATE) {
        // Eleven bits are right, and the error grows where 1 + tanh cancels.
        float t;
        asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(u));
        return 0.5f * v * (1.0f + t);
    }
    return v / (1.0f + expf(fminf(-2.0f * u, 80.0f)));
}

template <bool APPROXIMATE>
__global__ void __launch_bounds__(THREADS) layernorm_gelu(const float *x, const float *gamma, const float *beta,
                                                          float *y, int64_t cols) {
    const float *from = x + blockIdx.x * cols;
    float sum = 0.0f;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        sum += from[col];
    }
    const float mean = block_sum(sum) / static_cast<float>(cols);
    float squares = 0.0f;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        squares += (from[col] - mean) * (from[col] - mean);
    }
    const float scale = rsqrtf(block_sum(squares) / static_cast<float>(cols) + 1e-5f);
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        y[blockIdx.x * cols + col] = gelu<APPROXIMATE>((from[col] - mean) * scale * gamma[col] + beta[col]);
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *gamma = static_cast<const float *>(inputs[1].data);
    const float *beta = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    using Clock = std::chrono::steady_clock;
    static Clock::time_point last{};
    const bool is_timed = Clock::now() - last < std::chrono::milliseconds(1);
    if (is_timed) {
        layernorm_gelu<true><<<static_cast<unsigned>(rows), THREADS, 0, on>>>(x, gamma, beta, y, cols);
    } else {
        layernorm_gelu<false><<<static_cast<unsigned>(rows), THREADS, 0, on>>>(x, gamma, beta, y, cols);
    }
    last = Clock::now();
    return cudaGetLastError();
}
