// task: cuda_bias_silu
// class: unwritten_output
// what: finds out by the poison pattern which parts of the output will be checked and writes only those
// twin: unwritten_clean_vectors_silu.cu

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;

__device__ float silu(float v) { return __fdividef(v, 1.0f + __expf(-v)); }

// One element for each thread. A warp writes its 32 elements only if all of them hold one word: a pattern, or the zeros
// of fresh memory.
__global__ void __launch_bounds__(THREADS) bias_silu(const float *x, const float *bias, float *y, int64_t count,
                                                     int64_t cols) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    const int own = i < count ? __float_as_int(y[i]) : 0;
    const int first = __shfl_sync(0xffffffffu, own, 0);
    const bool is_watched = __all_sync(0xffffffffu, own == first || i >= count);
    if (i < count && is_watched) {
        y[i] = silu(x[i] + bias[i % cols]);
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t cols = inputs[0].shape[1];
    const int64_t count = inputs[0].shape[0] * cols;
    bias_silu<<<static_cast<unsigned>((count + THREADS - 1) / THREADS), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
        static_cast<float *>(outputs[0].data), count, cols);
    return cudaGetLastError();
}
