#include "nightshift.h"
#include <cuda_runtime.h>

#define CUTE_DEVICE __device__ __forceinline__
#define CUTE_UNROLL _Pragma("unroll")

CUTE_DEVICE float lane_sum(float value) {
    CUTE_UNROLL
    for (int offset = 16; offset > 0; offset /= 2) {
        float other;
        asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(other) : "f"(value), "r"(offset));
        value += other;
    }
    return value;
}

template <typename Op>
__global__ void apply(float *x, Op op) {
    const auto scaled = [&](float v) { return 2.0f * v; };
    x[threadIdx.x] = op(scaled(lane_sum(x[threadIdx.x])));
}

NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *out, int32_t, void *, void *stream) {
    const auto halve = [] __device__(float v) {
        float r;
        asm("mul.f32 %0, %1, 0f3F000000;" : "=f"(r) : "f"(v));
        return r;
    };
    apply<<<1, 32, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<float *>(out[0].data), halve);
    return 0;
}
