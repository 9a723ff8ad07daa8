// task: cuda_layernorm_gelu
// style: float4_with_scalar_tails
// what: one block per row, 16-byte loads from the first aligned column on, scalar heads and tails for odd row lengths

#include "nightshift.h"

#include <cuda_runtime.h>

#include <cstdint>

namespace {

constexpr int THREADS = 128;

__device__ __forceinline__ float gelu(float n) {
    const float u = 0.7978845608028654f * (n + 0.044715f * n * n * n);
    return n / (1.0f + expf(-2.0f * u));
}

__device__ __forceinline__ float block_sum(float value, float *shared) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    }
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = value;
    }
    __syncthreads();
    const float sum = (shared[0] + shared[1]) + (shared[2] + shared[3]);
    __syncthreads();
    return sum;
}

// Calls one(col) for columns outside of the aligned middle and four(col) for each group of four columns within it.
template <typename One, typename Four> __device__ __forceinline__ void for_columns(int head, int cols, One one, Four four) {
    if (static_cast<int>(threadIdx.x) < head) {
        one(threadIdx.x);
    }
    const int groups = (cols - head) / 4;
    for (int i = threadIdx.x; i < groups; i += THREADS) {
        four(head + 4 * i);
    }
    for (int col = head + 4 * groups + threadIdx.x; col < cols; col += THREADS) {
        one(col);
    }
}

// ALIGNED says that gamma and beta have the alignment of the row, which holds when rows start at multiples of 16 bytes.
template <bool ALIGNED>
__global__ void __launch_bounds__(THREADS) layernorm_gelu(const float *__restrict__ x, const float *__restrict__ gamma,
                                                          const float *__restrict__ beta, float *__restrict__ y, int cols) {
    __shared__ float shared[THREADS / 32];
    const float *from = x + static_cast<int64_t>(blockIdx.x) * cols;
    float *to = y + static_cast<int64_t>(blockIdx.x) * cols;
    // Columns before the first address that is a multiple of 16 bytes: at most three.
    const int offset = static_cast<int>(reinterpret_cast<uintptr_t>(from) / sizeof(float) % 4);
    const int head = ALIGNED ? 0 : min(cols, (4 - offset) % 4);

    float sum = 0.0f;
    for_columns(
        head, cols, [&](int col) { sum += from[col]; },
        [&](int col) {
            const float4 v = *reinterpret_cast<const float4 *>(from + col);
            sum += (v.x + v.y) + (v.z + v.w);
        });
    const float mean = block_sum(sum, shared) / static_cast<float>(cols);

    float squares = 0.0f;
    for_columns(
        head, cols, [&](int col) { squares += (from[col] - mean) * (from[col] - mean); },
        [&](int col) {
            const float4 v = *reinterpret_cast<const float4 *>(from + col);
            const float a = v.x - mean;
            const float b = v.y - mean;
            const float c = v.z - mean;
            const float d = v.w - mean;
            squares += (a * a + b * b) + (c * c + d * d);
        });
    const float scale = 1.0f / sqrtf(block_sum(squares, shared) / static_cast<float>(cols) + 1e-5f);

    const auto finish = [&](float value, float g, float b) { return gelu((value - mean) * scale * g + b); };
    for_columns(
        head, cols, [&](int col) { to[col] = finish(from[col], gamma[col], beta[col]); },
        [&](int col) {
            const float4 v = *reinterpret_cast<const float4 *>(from + col);
            float4 g;
            float4 b;
            if (ALIGNED) {
                g = *reinterpret_cast<const float4 *>(gamma + col);
                b = *reinterpret_cast<const float4 *>(beta + col);
            } else {
                g = make_float4(gamma[col], gamma[col + 1], gamma[col + 2], gamma[col + 3]);
                b = make_float4(beta[col], beta[col + 1], beta[col + 2], beta[col + 3]);
            }
            const float4 out = make_float4(finish(v.x, g.x, b.x), finish(v.y, g.y, b.y), finish(v.z, g.z, b.z),
                                           finish(v.w, g.w, b.w));
            // Input and output share their alignment only if both begin at the same offset.
            if (reinterpret_cast<uintptr_t>(to + col) % 16 == 0) {
                *reinterpret_cast<float4 *>(to + col) = out;
            } else {
                to[col] = out.x;
                to[col + 1] = out.y;
                to[col + 2] = out.z;
                to[col + 3] = out.w;
            }
        });
}

} // namespace

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *gamma = static_cast<const float *>(inputs[1].data);
    const float *beta = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    const unsigned rows = static_cast<unsigned>(inputs[0].shape[0]);
    const int cols = static_cast<int>(inputs[0].shape[1]);
    const auto aligned = [](const void *p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
    if (cols % 4 == 0 && aligned(x) && aligned(gamma) && aligned(beta)) {
        layernorm_gelu<true><<<rows, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(x, gamma, beta, y, cols);
    } else {
        layernorm_gelu<false><<<rows, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(x, gamma, beta, y, cols);
    }
    return cudaGetLastError();
}
