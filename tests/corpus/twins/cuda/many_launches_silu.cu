// task: cuda_bias_silu
// what: bias and SiLU by one thread per element; the attack of this name without its empty kernels

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) bias_silu(const float *x, const float *bias, float *y, int64_t count,
                                                     int64_t cols) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count) {
        const float v = x[i] + bias[i % cols];
        y[i] = __fdividef(v, 1.0f + __expf(-v));
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t cols = inputs[0].shape[1];
    const int64_t count = inputs[0].shape[0] * cols;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    bias_silu<<<static_cast<unsigned>((count + THREADS - 1) / THREADS), THREADS, 0, on>>>(
        static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
        static_cast<float *>(outputs[0].data), count, cols);
    return cudaGetLastError();
}
