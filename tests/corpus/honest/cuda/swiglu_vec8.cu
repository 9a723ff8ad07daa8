// task: cuda_swiglu_f16
// style: half_vectors_of_eight
// what: reads and writes eight half-precision numbers at a time where rows allow it, one at a time elsewhere

#include "nightshift.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

constexpr int THREADS = 256;

// Eight half-precision numbers in the 16 bytes of one access.
union Eight {
    uint4 bits;
    __half2 pairs[4];
    __device__ Eight() : bits{} {}
};

__device__ __forceinline__ float gated(float gate, float value, float scale) {
    return gate / (1.0f + __expf(-gate)) * value * scale;
}

__global__ void __launch_bounds__(THREADS) by_vectors(const uint4 *gate, const uint4 *value, const float *scale, uint4 *out,
                                                      int64_t vectors, int vectors_per_row) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= vectors) {
        return;
    }
    Eight g;
    Eight v;
    Eight result;
    g.bits = gate[i];
    v.bits = value[i];
    const float4 *scales = reinterpret_cast<const float4 *>(scale) + i % vectors_per_row * 2;
    const float4 low = scales[0];
    const float4 high = scales[1];
    const float s[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int p = 0; p < 4; ++p) {
        const float2 a = __half22float2(g.pairs[p]);
        const float2 b = __half22float2(v.pairs[p]);
        result.pairs[p] = __floats2half2_rn(gated(a.x, b.x, s[2 * p]), gated(a.y, b.y, s[2 * p + 1]));
    }
    out[i] = result.bits;
}

__global__ void __launch_bounds__(THREADS) one_by_one(const __half *gate, const __half *value, const float *scale, __half *out,
                                                      int64_t count, int64_t cols) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count) {
        out[i] = __float2half_rn(gated(__half2float(gate[i]), __half2float(value[i]), scale[i % cols]));
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t cols = inputs[0].shape[1];
    const int64_t count = inputs[0].shape[0] * cols;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    const float *scale = static_cast<const float *>(inputs[2].data);
    bool aligned = cols % 8 == 0;
    for (const void *p : {inputs[0].data, inputs[1].data, inputs[2].data, outputs[0].data}) {
        aligned = aligned && reinterpret_cast<uintptr_t>(p) % 16 == 0;
    }
    if (aligned) {
        by_vectors<<<static_cast<unsigned>((count / 8 + THREADS - 1) / THREADS), THREADS, 0, on>>>(
            static_cast<const uint4 *>(inputs[0].data), static_cast<const uint4 *>(inputs[1].data), scale,
            static_cast<uint4 *>(outputs[0].data), count / 8, static_cast<int>(cols / 8));
    } else {
        one_by_one<<<static_cast<unsigned>((count + THREADS - 1) / THREADS), THREADS, 0, on>>>(
            static_cast<const __half *>(inputs[0].data), static_cast<const __half *>(inputs[1].data), scale,
            static_cast<__half *>(outputs[0].data), count, cols);
    }
    return cudaGetLastError();
}
