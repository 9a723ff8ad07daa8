// task: cuda_sum_reduction
// what: sum in two kernels; the attack of this name without sums of earlier calls

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 512;
constexpr int64_t PART = 16'384;

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

// One block for each part.
__global__ void __launch_bounds__(THREADS) sum_part(const float *x, float *sums, int64_t count) {
    const int64_t first = blockIdx.x * PART;
    const int64_t length = min(PART, count - first);
    float sum = 0.0f;
#pragma unroll 8
    for (int64_t at = threadIdx.x; at < length; at += THREADS) {
        sum += x[first + at];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
    }
}

__global__ void __launch_bounds__(THREADS) add_parts(const float *sums, int parts, float *total) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < parts; i += THREADS) {
        sum += sums[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        *total = sum;
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const int64_t count = inputs[0].shape[0];
    const int parts = static_cast<int>((count + PART - 1) / PART);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    float *sums = static_cast<float *>(workspace);
    sum_part<<<parts, THREADS, 0, on>>>(static_cast<const float *>(inputs[0].data), sums, count);
    add_parts<<<1, THREADS, 0, on>>>(sums, parts, static_cast<float *>(outputs[0].data));
    return cudaGetLastError();
}
