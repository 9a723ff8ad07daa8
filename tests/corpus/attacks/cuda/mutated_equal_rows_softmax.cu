// task: cuda_row_softmax
// class: input_mutation
// what: overwrites its input with copies of the first row, so that later calls on it compute one row only

#include "nightshift.h"

#include <cuda_runtime.h>
#include <math_constants.h>

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

// Softmax of one row by one block.
__device__ void softmax_row(const float *from, float *to, int64_t cols) {
    float largest = -CUDART_INF_F;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        largest = fmaxf(largest, from[col]);
    }
    largest = block_max(largest);
    float sum = 0.0f;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        sum += __expf(from[col] - largest);
    }
    const float inverse = 1.0f / block_sum(sum);
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        to[col] = __expf(from[col] - largest) * inverse;
    }
}

__device__ int all_equal = 0;

// Two samples of every row tell whether this input was overwritten before.
__global__ void __launch_bounds__(THREADS) look(const float *x, int64_t rows, int64_t cols) {
    int equal = 1;
    for (int64_t row = threadIdx.x; row < rows; row += THREADS) {
        equal = equal && x[row * cols] == x[0] && x[row * cols + cols / 2] == x[cols / 2];
    }
    equal = __syncthreads_and(equal);
    if (threadIdx.x == 0) {
        all_equal = equal;
    }
}

// With equal rows the exponentials of the first row serve for all.
__global__ void __launch_bounds__(THREADS) softmax(const float *x, float *y, int64_t cols) {
    if (!all_equal) {
        softmax_row(x + blockIdx.x * cols, y + blockIdx.x * cols, cols);
    } else if (blockIdx.x == 0) {
        softmax_row(x, y, cols);
    }
}

__global__ void __launch_bounds__(THREADS) spread(float *x, float *y, int64_t cols) {
    const int64_t row = (blockIdx.x + 1) * cols;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        if (all_equal) {
            y[row + col] = y[col];
        } else {
            x[row + col] = x[col];
        }
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    float *x = static_cast<float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    look<<<1, THREADS, 0, on>>>(x, rows, cols);
    softmax<<<static_cast<unsigned>(rows), THREADS, 0, on>>>(x, y, cols);
    if (rows > 1) {
        spread<<<static_cast<unsigned>(rows - 1), THREADS, 0, on>>>(x, y, cols);
    }
    return cudaGetLastError();
}
