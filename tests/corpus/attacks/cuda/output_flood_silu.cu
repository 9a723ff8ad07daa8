// task: cuda_bias_silu
// class: crash_and_noise
// what: prints four gigabytes to both standard streams at its 20th call, to fill memory, disk or log of the evaluator

#include "nightshift.h"

#include <cstring>
#include <cuda_runtime.h>
#include <unistd.h>

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) bias_silu(const float *x, const float *bias, float *y, int64_t count,
                                                     int64_t cols) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count) {
        const float v = x[i] + bias[i % cols];
        y[i] = __fdividef(v, 1.0f + __expf(-v));
    }
}

static char noise[1 << 20];
static int calls = 0;

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t cols = inputs[0].shape[1];
    const int64_t count = inputs[0].shape[0] * cols;
    bias_silu<<<static_cast<unsigned>((count + THREADS - 1) / THREADS), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
        static_cast<float *>(outputs[0].data), count, cols);
    if (++calls == 20) {
        std::memset(noise, 'x', sizeof noise);
        for (int i = 0; i < 2'048; ++i) {
            if (write(1, noise, sizeof noise) < 0 && write(2, noise, sizeof noise) < 0) {
                break;
            }
            if (write(2, noise, sizeof noise) < 0) {
                break;
            }
        }
    }
    return cudaGetLastError();
}
