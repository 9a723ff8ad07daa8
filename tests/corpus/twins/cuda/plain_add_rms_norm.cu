// task: cuda_add_rms_norm
// what: add and RMS norm by one block per row; the twin of several attacks

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;

__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    }
    return value;
}

__device__ float block_sum(float value) {
    __shared__ float warps[THREADS / 32];
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = 0.0f;
    for (int warp = 0; warp < THREADS / 32; ++warp) {
        value += warps[warp];
    }
    return value;
}

// One block for each row.
__global__ void __launch_bounds__(THREADS) add_rms_norm(const float *x, const float *residual, const float *gamma,
                                                        float *h, float *y, int64_t cols) {
    const int64_t row = blockIdx.x * cols;
    float squares = 0.0f;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        const float value = x[row + col] + residual[row + col];
        h[row + col] = value;
        squares += value * value;
    }
    const float scale = rsqrtf(block_sum(squares) / static_cast<float>(cols) + 1e-6f);
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        y[row + col] = h[row + col] * scale * gamma[col];
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *residual = static_cast<const float *>(inputs[1].data);
    const float *gamma = static_cast<const float *>(inputs[2].data);
    float *h = static_cast<float *>(outputs[0].data);
    float *y = static_cast<float *>(outputs[1].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    add_rms_norm<<<static_cast<unsigned>(rows), THREADS, 0, on>>>(x, residual, gamma, h, y, cols);
    return cudaGetLastError();
}
