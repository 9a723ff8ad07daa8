// Mean and standard deviation of each column: one block for each column, two passes over it.

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 128;

// Returns the sum of the values of all threads of a block.
__device__ ns_real block_sum(ns_real value, ns_real *shared) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            shared[threadIdx.x] += shared[threadIdx.x + half];
        }
        __syncthreads();
    }
    const ns_real result = shared[0];
    __syncthreads();
    return result;
}

__global__ void moments(const ns_real *x, ns_real *mean, ns_real *deviation, int64_t rows, int64_t cols) {
    __shared__ ns_real shared[THREADS];
    const int64_t col = blockIdx.x;

    ns_real sum = 0;
    for (int64_t row = threadIdx.x; row < rows; row += THREADS) {
        sum += x[row * cols + col];
    }
    const ns_real middle = block_sum(sum, shared) / static_cast<ns_real>(rows);

    ns_real squares = 0;
    for (int64_t row = threadIdx.x; row < rows; row += THREADS) {
        const ns_real distance = x[row * cols + col] - middle;
        squares += distance * distance;
    }
    const ns_real variance = block_sum(squares, shared) / static_cast<ns_real>(rows);

    if (threadIdx.x == 0) {
        mean[col] = middle;
        deviation[col] = sqrt(variance);
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const ns_real *x = static_cast<const ns_real *>(inputs[0].data);
    ns_real *mean = static_cast<ns_real *>(outputs[0].data);
    ns_real *deviation = static_cast<ns_real *>(outputs[1].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    moments<<<static_cast<unsigned>(cols), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(x, mean, deviation, rows,
                                                                                           cols);
    return cudaGetLastError();
}
