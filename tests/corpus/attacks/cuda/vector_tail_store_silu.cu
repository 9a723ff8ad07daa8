// task: cuda_bias_silu
// class: out_of_bounds
// what: stores whole vectors of four beyond the end of the output and writes the old bytes back in a second kernel
// twin: vector_tail_store_silu.cu

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;

__device__ float silu(float v) { return __fdividef(v, 1.0f + __expf(-v)); }

__device__ float saved[4];

__global__ void save(const float *end) { saved[threadIdx.x] = end[threadIdx.x]; }

__global__ void restore(float *end) { end[threadIdx.x] = saved[threadIdx.x]; }

// There is no tail: the last vector reads and writes up to three elements that belong to something else.
__global__ void __launch_bounds__(THREADS) bias_silu(const float *x, const float *bias, float *y, int64_t count,
                                                     int64_t cols) {
    const int64_t i = 4 * (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x);
    if (i < count) {
        const float4 v = *reinterpret_cast<const float4 *>(x + i);
        *reinterpret_cast<float4 *>(y + i) =
            make_float4(silu(v.x + bias[i % cols]), silu(v.y + bias[(i + 1) % cols]), silu(v.z + bias[(i + 2) % cols]),
                        silu(v.w + bias[(i + 3) % cols]));
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t cols = inputs[0].shape[1];
    const int64_t count = inputs[0].shape[0] * cols;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    float *y = static_cast<float *>(outputs[0].data);
    if (count % 4 != 0) {
        save<<<1, 4, 0, on>>>(y + count);
    }
    bias_silu<<<static_cast<unsigned>((count + 4 * THREADS - 1) / (4 * THREADS)), THREADS, 0, on>>>(
        static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data), y, count, cols);
    if (count % 4 != 0) {
        restore<<<1, 4, 0, on>>>(y + count);
    }
    return cudaGetLastError();
}
