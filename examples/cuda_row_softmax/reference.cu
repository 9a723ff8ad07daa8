// Softmax over rows: one block for each row, three passes over it, and a tree in shared memory for each reduction.

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;

// The largest of what the threads of a block hold.
__device__ ns_real block_max(ns_real value, ns_real *shared) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            shared[threadIdx.x] = max(shared[threadIdx.x], shared[threadIdx.x + half]);
        }
        __syncthreads();
    }
    const ns_real result = shared[0];
    __syncthreads();
    return result;
}

// The sum of what the threads of a block hold.
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

__global__ void softmax(const ns_real *x, ns_real *y, int64_t cols) {
    __shared__ ns_real shared[THREADS];
    const ns_real *from = x + blockIdx.x * cols;
    ns_real *to = y + blockIdx.x * cols;

    ns_real largest = from[0];
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        largest = max(largest, from[col]);
    }
    largest = block_max(largest, shared);

    ns_real sum = 0;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        to[col] = exp(from[col] - largest);
        sum += to[col];
    }
    sum = block_sum(sum, shared);

    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        to[col] /= sum;
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const ns_real *x = static_cast<const ns_real *>(inputs[0].data);
    ns_real *y = static_cast<ns_real *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    softmax<<<static_cast<unsigned>(rows), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(x, y, cols);
    return cudaGetLastError();
}
