// task: cuda_rmsnorm_bf16
// style: warp_per_row_pairs
// what: ns_init widens the weights to floats; one warp per row reads pairs of bfloat16 numbers, a last odd column alone

#include "nightshift.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

constexpr int WARPS = 4;

__global__ void widen(const __nv_bfloat16 *from, float *to, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        to[i] = __bfloat162float(from[i]);
    }
}

// PAIRS: every row begins at a multiple of four bytes.
template <bool PAIRS>
__global__ void __launch_bounds__(WARPS * 32) rmsnorm(const __nv_bfloat16 *__restrict__ x,
                                                      const __nv_bfloat16 *__restrict__ residual,
                                                      const float *__restrict__ weight, __nv_bfloat16 *__restrict__ out,
                                                      int64_t rows, int cols) {
    const int lane = threadIdx.x % 32;
    const int64_t row = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / 32;
    if (row >= rows) {
        return;
    }
    const __nv_bfloat16 *a = x + row * cols;
    const __nv_bfloat16 *b = residual + row * cols;
    __nv_bfloat16 *to = out + row * cols;
    const int pairs = PAIRS ? cols / 2 : 0;

    const auto sum_pair = [&](int i) {
        const float2 l = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162 *>(a)[i]);
        const float2 r = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162 *>(b)[i]);
        return make_float2(l.x + r.x, l.y + r.y);
    };
    const auto sum_one = [&](int col) { return __bfloat162float(a[col]) + __bfloat162float(b[col]); };

    float even = 0.0f;
    float odd = 0.0f;
    for (int i = lane; i < pairs; i += 32) {
        const float2 sum = sum_pair(i);
        even += sum.x * sum.x;
        odd += sum.y * sum.y;
    }
    for (int col = 2 * pairs + lane; col < cols; col += 32) {
        const float sum = sum_one(col);
        even += sum * sum;
    }
    float squares = even + odd;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        squares += __shfl_xor_sync(0xffffffffu, squares, offset);
    }
    const float factor = rsqrtf(squares / static_cast<float>(cols) + 1e-6f);

    for (int i = lane; i < pairs; i += 32) {
        const float2 sum = sum_pair(i);
        reinterpret_cast<__nv_bfloat162 *>(to)[i] =
            __floats2bfloat162_rn(sum.x * factor * weight[2 * i], sum.y * factor * weight[2 * i + 1]);
    }
    for (int col = 2 * pairs + lane; col < cols; col += 32) {
        to[col] = __float2bfloat16_rn(sum_one(col) * factor * weight[col]);
    }
}

NS_EXPORT int ns_init(const ns_tensor *params, int32_t, void **state) {
    const int cols = static_cast<int>(params[0].shape[0]);
    float *weight = nullptr;
    cudaError_t status = cudaMalloc(&weight, sizeof(float) * cols);
    *state = weight;
    if (status == cudaSuccess) {
        widen<<<(cols + 127) / 128, 128>>>(static_cast<const __nv_bfloat16 *>(params[0].data), weight, cols);
        status = cudaGetLastError();
    }
    return status == cudaSuccess ? cudaDeviceSynchronize() : status;
}

NS_EXPORT void ns_free(void *state) {
    cudaFree(state);
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const auto *x = static_cast<const __nv_bfloat16 *>(inputs[0].data);
    const auto *residual = static_cast<const __nv_bfloat16 *>(inputs[1].data);
    auto *out = static_cast<__nv_bfloat16 *>(outputs[0].data);
    const float *weight = static_cast<const float *>(state);
    const int64_t rows = inputs[0].shape[0];
    const int cols = static_cast<int>(inputs[0].shape[1]);
    const unsigned blocks = static_cast<unsigned>((rows + WARPS - 1) / WARPS);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    const uintptr_t addresses =
        reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(residual) | reinterpret_cast<uintptr_t>(out);
    // With a single row its length does not matter for the alignment.
    if (addresses % 4 == 0 && (cols % 2 == 0 || rows == 1)) {
        rmsnorm<true><<<blocks, WARPS * 32, 0, on>>>(x, residual, weight, out, rows, cols);
    } else {
        rmsnorm<false><<<blocks, WARPS * 32, 0, on>>>(x, residual, weight, out, rows, cols);
    }
    return cudaGetLastError();
}
