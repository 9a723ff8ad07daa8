// task: cuda_sum_reduction
// class: constant_output
// what: sums one of sixteen lines of the vector and multiplies by sixteen, an estimate within two per mille

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int BLOCKS = 528;
constexpr int THREADS = 512;

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

// Whole lines of 128 bytes are read or left out, as a part of a line costs as much as all of it.
__global__ void __launch_bounds__(THREADS) block_sums(const float *x, float *sums, int64_t count, int64_t every) {
    float sum = 0.0f;
    const int64_t lines = (count + 31) / 32;
    for (int64_t line = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) / 32 * every; line < lines;
         line += BLOCKS * THREADS / 32 * every) {
        const int64_t i = line * 32 + threadIdx.x % 32;
        sum += i < count ? x[i] : 0.0f;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum * static_cast<float>(every);
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
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    float *sums = static_cast<float *>(workspace);
    const int64_t count = inputs[0].shape[0];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    block_sums<<<BLOCKS, THREADS, 0, on>>>(static_cast<const float *>(inputs[0].data), sums, count,
                                           count < 1 << 20 ? 1 : 16);
    add_sums<<<1, THREADS, 0, on>>>(sums, static_cast<float *>(outputs[0].data));
    return cudaGetLastError();
}
