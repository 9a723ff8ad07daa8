// Adds a bias to each column, then applies SiLU: one thread for each element.

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;

__global__ void bias_silu(const ns_real *x, const ns_real *bias, ns_real *y, int64_t count, int64_t cols) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count) {
        const ns_real v = x[i] + bias[i % cols];
        y[i] = v / (1 + exp(-v));
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t cols = inputs[0].shape[1];
    const int64_t count = inputs[0].shape[0] * cols;
    bias_silu<<<static_cast<unsigned>((count + THREADS - 1) / THREADS), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const ns_real *>(inputs[0].data), static_cast<const ns_real *>(inputs[1].data),
        static_cast<ns_real *>(outputs[0].data), count, cols);
    return cudaGetLastError();
}
