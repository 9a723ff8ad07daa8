// task: cuda_rmsnorm_bf16
// style: row_in_registers_vectors
// what: 16-byte loads of eight bfloat16 numbers, the row's sums held in registers; rows of other lengths are read twice

#include "nightshift.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

constexpr int THREADS = 256;
constexpr int MAX_VECTORS = 2; // of each thread: rows of up to 4,096 columns

__device__ __forceinline__ float block_sum(float value) {
    __shared__ float shared[THREADS / 32];
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    }
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = 0.0f;
#pragma unroll
    for (int warp = 0; warp < THREADS / 32; ++warp) {
        value += shared[warp];
    }
    return value;
}

// A bfloat16 number is the upper half of a float.
__device__ __forceinline__ float2 unpack(unsigned pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

__device__ __forceinline__ unsigned pack(float low, float high) {
    const unsigned a = __bfloat16_as_ushort(__float2bfloat16_rn(low));
    const unsigned b = __bfloat16_as_ushort(__float2bfloat16_rn(high));
    return a | b << 16;
}

__global__ void __launch_bounds__(THREADS) by_vectors(const uint4 *x, const uint4 *residual, const uint4 *weight, uint4 *out,
                                                      int vectors, float cols) {
    const int64_t first = static_cast<int64_t>(blockIdx.x) * vectors;
    float held[MAX_VECTORS][8];
    float squares = 0.0f;
#pragma unroll
    for (int n = 0; n < MAX_VECTORS; ++n) {
        const int at = n * THREADS + threadIdx.x;
        uint4 a = make_uint4(0, 0, 0, 0);
        uint4 b = make_uint4(0, 0, 0, 0);
        if (at < vectors) {
            a = x[first + at];
            b = residual[first + at];
        }
        const unsigned left[4] = {a.x, a.y, a.z, a.w};
        const unsigned right[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int p = 0; p < 4; ++p) {
            const float2 l = unpack(left[p]);
            const float2 r = unpack(right[p]);
            held[n][2 * p] = l.x + r.x;
            held[n][2 * p + 1] = l.y + r.y;
            squares += held[n][2 * p] * held[n][2 * p] + held[n][2 * p + 1] * held[n][2 * p + 1];
        }
    }
    const float factor = rsqrtf(block_sum(squares) / cols + 1e-6f);
#pragma unroll
    for (int n = 0; n < MAX_VECTORS; ++n) {
        const int at = n * THREADS + threadIdx.x;
        if (at < vectors) {
            const uint4 w = weight[at];
            const unsigned scales[4] = {w.x, w.y, w.z, w.w};
            unsigned result[4];
#pragma unroll
            for (int p = 0; p < 4; ++p) {
                const float2 s = unpack(scales[p]);
                result[p] = pack(held[n][2 * p] * factor * s.x, held[n][2 * p + 1] * factor * s.y);
            }
            out[first + at] = make_uint4(result[0], result[1], result[2], result[3]);
        }
    }
}

__global__ void __launch_bounds__(THREADS) any_length(const __nv_bfloat16 *x, const __nv_bfloat16 *residual,
                                                      const __nv_bfloat16 *weight, __nv_bfloat16 *out, int64_t cols) {
    const int64_t first = blockIdx.x * cols;
    const auto sum_at = [&](int64_t col) { return __bfloat162float(x[first + col]) + __bfloat162float(residual[first + col]); };
    float squares = 0.0f;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        const float sum = sum_at(col);
        squares += sum * sum;
    }
    const float factor = rsqrtf(block_sum(squares) / static_cast<float>(cols) + 1e-6f);
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        out[first + col] = __float2bfloat16_rn(sum_at(col) * factor * __bfloat162float(weight[col]));
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    uintptr_t bits = 0;
    for (int i = 0; i < 3; ++i) {
        bits |= reinterpret_cast<uintptr_t>(inputs[i].data);
    }
    bits |= reinterpret_cast<uintptr_t>(outputs[0].data);
    if (bits % 16 == 0 && cols % 8 == 0 && cols / 8 <= THREADS * MAX_VECTORS) {
        by_vectors<<<static_cast<unsigned>(rows), THREADS, 0, on>>>(
            static_cast<const uint4 *>(inputs[0].data), static_cast<const uint4 *>(inputs[1].data),
            static_cast<const uint4 *>(inputs[2].data), static_cast<uint4 *>(outputs[0].data), static_cast<int>(cols / 8),
            static_cast<float>(cols));
    } else {
        any_length<<<static_cast<unsigned>(rows), THREADS, 0, on>>>(
            static_cast<const __nv_bfloat16 *>(inputs[0].data), static_cast<const __nv_bfloat16 *>(inputs[1].data),
            static_cast<const __nv_bfloat16 *>(inputs[2].data), static_cast<__nv_bfloat16 *>(outputs[0].data), cols);
    }
    return cudaGetLastError();
}
