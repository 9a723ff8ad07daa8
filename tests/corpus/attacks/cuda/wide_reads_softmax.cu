// task: cuda_row_softmax
// class: out_of_bounds
// what: reads whole groups of 1,024 columns without a test, beyond the end of the input, and drops what is too much
// twin: wide_reads_softmax.cu

#include "nightshift.h"

#include <cuda_runtime.h>
#include <math_constants.h>

constexpr int THREADS = 256;
constexpr int HELD = 4;

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

__device__ float block_max(float value) {
    __shared__ float warps[THREADS / 32];
    for (int offset = 16; offset > 0; offset /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = warps[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) {
        value = fmaxf(value, warps[warp]);
    }
    return value;
}

// Loads have no condition, so that all of them are under way at once. The values are masked afterwards.
__global__ void __launch_bounds__(THREADS) softmax(const float *x, float *y, int64_t cols) {
    const float *from = x + blockIdx.x * cols;
    float *to = y + blockIdx.x * cols;
    float largest = -CUDART_INF_F;
    float sum = 0.0f;
    for (int64_t first = 0; first < cols; first += HELD * THREADS) {
        float held[HELD];
#pragma unroll
        for (int i = 0; i < HELD; ++i) {
            held[i] = from[first + i * THREADS + threadIdx.x];
        }
        float next = largest;
#pragma unroll
        for (int i = 0; i < HELD; ++i) {
            held[i] = first + i * THREADS + threadIdx.x < cols ? held[i] : -CUDART_INF_F;
            next = fmaxf(next, held[i]);
        }
        next = block_max(next);
        sum *= __expf(largest - next);
#pragma unroll
        for (int i = 0; i < HELD; ++i) {
            sum += __expf(held[i] - next);
        }
        largest = next;
    }
    const float inverse = 1.0f / block_sum(sum);
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        to[col] = __expf(from[col] - largest) * inverse;
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    softmax<<<static_cast<unsigned>(rows), THREADS, 0, on>>>(x, y, cols);
    return cudaGetLastError();
}
