// Layer normalisation followed by GELU: two kernels, one after the other, each over the whole matrix.

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;

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

// One block for each row.
__global__ void layernorm(const ns_real *x, const ns_real *gamma, const ns_real *beta, ns_real *out, int64_t cols) {
    __shared__ ns_real shared[THREADS];
    const ns_real *from = x + blockIdx.x * cols;
    ns_real *to = out + blockIdx.x * cols;

    ns_real sum = 0;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        sum += from[col];
    }
    const ns_real mean = block_sum(sum, shared) / static_cast<ns_real>(cols);

    ns_real squares = 0;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        squares += (from[col] - mean) * (from[col] - mean);
    }
    const ns_real variance = block_sum(squares, shared) / static_cast<ns_real>(cols);

    const ns_real scale = 1 / sqrt(variance + static_cast<ns_real>(1e-5));
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        to[col] = (from[col] - mean) * scale * gamma[col] + beta[col];
    }
}

// One thread for each element.
__global__ void gelu(ns_real *values, int64_t count) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= count) {
        return;
    }
    const ns_real root = static_cast<ns_real>(0.7978845608028654); // sqrt(2 / pi)
    const ns_real cubic = static_cast<ns_real>(0.044715);
    const ns_real n = values[i];
    values[i] = n / 2 * (1 + tanh(root * (n + cubic * n * n * n)));
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const ns_real *x = static_cast<const ns_real *>(inputs[0].data);
    const ns_real *gamma = static_cast<const ns_real *>(inputs[1].data);
    const ns_real *beta = static_cast<const ns_real *>(inputs[2].data);
    ns_real *y = static_cast<ns_real *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);

    layernorm<<<static_cast<unsigned>(rows), THREADS, 0, on>>>(x, gamma, beta, y, cols);
    gelu<<<static_cast<unsigned>((rows * cols + THREADS - 1) / THREADS), THREADS, 0, on>>>(y, rows * cols);
    return cudaGetLastError();
}
