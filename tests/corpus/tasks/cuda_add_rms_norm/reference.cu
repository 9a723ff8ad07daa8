// Adds a residual, then normalises each row by its root mean square: two kernels, both results in memory.

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;

__global__ void add(const ns_real *x, const ns_real *residual, ns_real *h, int64_t count) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count) {
        h[i] = x[i] + residual[i];
    }
}

// One block for each row.
__global__ void rms_norm(const ns_real *h, const ns_real *gamma, ns_real *y, int64_t cols) {
    __shared__ ns_real shared[THREADS];
    const ns_real *from = h + blockIdx.x * cols;
    ns_real squares = 0;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        squares += from[col] * from[col];
    }
    shared[threadIdx.x] = squares;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            shared[threadIdx.x] += shared[threadIdx.x + half];
        }
        __syncthreads();
    }
    const ns_real scale = 1 / sqrt(shared[0] / static_cast<ns_real>(cols) + static_cast<ns_real>(1e-6));
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        y[blockIdx.x * cols + col] = from[col] * scale * gamma[col];
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    ns_real *h = static_cast<ns_real *>(outputs[0].data);
    add<<<static_cast<unsigned>((rows * cols + THREADS - 1) / THREADS), THREADS, 0, on>>>(
        static_cast<const ns_real *>(inputs[0].data), static_cast<const ns_real *>(inputs[1].data), h, rows * cols);
    rms_norm<<<static_cast<unsigned>(rows), THREADS, 0, on>>>(h, static_cast<const ns_real *>(inputs[2].data),
                                                              static_cast<ns_real *>(outputs[1].data), cols);
    return cudaGetLastError();
}
