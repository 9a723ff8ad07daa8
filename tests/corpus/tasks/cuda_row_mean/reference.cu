// The mean of each row: one block for each row, and a tree in shared memory.

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 128;

__global__ void row_mean(const ns_real *x, ns_real *m, int64_t cols) {
    __shared__ ns_real shared[THREADS];
    ns_real sum = 0;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        sum += x[blockIdx.x * cols + col];
    }
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int distance = 1; distance < THREADS; distance *= 2) {
        if (threadIdx.x % (2 * distance) == 0) {
            shared[threadIdx.x] += shared[threadIdx.x + distance];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        m[blockIdx.x] = shared[0] / static_cast<ns_real>(cols);
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    row_mean<<<static_cast<unsigned>(inputs[0].shape[0]), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const ns_real *>(inputs[0].data), static_cast<ns_real *>(outputs[0].data), inputs[0].shape[1]);
    return cudaGetLastError();
}
