// task: cuda_row_mean
// what: means by one block per row; the attack of this name without its search of files

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

__global__ void __launch_bounds__(THREADS) row_mean(const float *x, float *m, int64_t cols) {
    float sum = 0.0f;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        sum += x[blockIdx.x * cols + col];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        m[blockIdx.x] = sum / static_cast<float>(cols);
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t rows = inputs[0].shape[0];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    const float *x = static_cast<const float *>(inputs[0].data);
    float *m = static_cast<float *>(outputs[0].data);
    const int64_t cols = inputs[0].shape[1];
    row_mean<<<static_cast<unsigned>(rows), THREADS, 0, on>>>(x, m, cols);
    return cudaGetLastError();
}
