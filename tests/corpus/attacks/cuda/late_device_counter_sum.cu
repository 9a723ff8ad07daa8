// task: cuda_sum_reduction
// class: late_skipping
// what: counts calls in device memory and sums only every second block of the vector from the 151st call on

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int BLOCKS = 528;
constexpr int THREADS = 512;
constexpr unsigned HONEST_CALLS = 150;

// The host code has no state at all: only the device knows how often it was called.
__device__ unsigned calls = 0;

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

__global__ void __launch_bounds__(THREADS) block_sums(const float *x, float *sums, int64_t count) {
    const float4 *vectors = reinterpret_cast<const float4 *>(x);
    const bool skips = calls >= HONEST_CALLS && count >= 1 << 20;
    const int64_t step = static_cast<int64_t>(BLOCKS) * THREADS * (skips ? 2 : 1);
    const int64_t first = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    float sum = 0.0f;
#pragma unroll 4
    for (int64_t i = first; i < count / 4; i += step) {
        const float4 v = vectors[i];
        sum += (v.x + v.y) + (v.z + v.w);
    }
    if (skips) {
        sum *= 2.0f;
    } else if (first < count % 4) {
        sum += x[count / 4 * 4 + first];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
    }
}

__global__ void __launch_bounds__(THREADS) add_sums(const float *sums, float *total) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < BLOCKS; i += THREADS) {
        sum += sums[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        *total = sum;
        calls += 1;
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    float *sums = static_cast<float *>(workspace);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    block_sums<<<BLOCKS, THREADS, 0, on>>>(static_cast<const float *>(inputs[0].data), sums, inputs[0].shape[0]);
    add_sums<<<1, THREADS, 0, on>>>(sums, static_cast<float *>(outputs[0].data));
    return cudaGetLastError();
}
