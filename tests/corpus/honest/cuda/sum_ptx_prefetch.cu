// task: cuda_sum_reduction
// style: inline_ptx_nc_loads_l2_prefetch
// what: reads through ld.global.nc.v4 and prefetches its next tile into L2; two kernels

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr int VECTORS = 4; // vectors of each thread per tile
constexpr int64_t TILE = THREADS * VECTORS * 4;

__device__ __forceinline__ float4 load_streaming(const float *address) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(address));
    return v;
}

__device__ __forceinline__ void prefetch(const float *address) {
    asm volatile("prefetch.global.L2 [%0];" : : "l"(address));
}

__device__ float block_sum(float value) {
    __shared__ float shared[THREADS];
    shared[threadIdx.x] = value;
    __syncthreads();
#pragma unroll
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            shared[threadIdx.x] += shared[threadIdx.x + half];
        }
        __syncthreads();
    }
    return shared[0];
}

__global__ void __launch_bounds__(THREADS) sum_tiles(const float *x, int64_t count, float *partials) {
    const int64_t step = gridDim.x * TILE;
    float own = 0.0f;
    for (int64_t first = blockIdx.x * TILE; first < count; first += step) {
        // One address for each line of 128 bytes of the next tile.
        const int64_t ahead = first + step + threadIdx.x * 32;
        if (threadIdx.x < TILE / 32 && ahead < count) {
            prefetch(x + ahead);
        }
        if (first + TILE <= count) {
#pragma unroll
            for (int i = 0; i < VECTORS; ++i) {
                const float4 v = load_streaming(x + first + (i * THREADS + threadIdx.x) * 4);
                own += (v.x + v.y) + (v.z + v.w);
            }
        } else {
            for (int64_t at = first + threadIdx.x; at < count; at += THREADS) {
                own += __ldg(x + at);
            }
        }
    }
    own = block_sum(own);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = own;
    }
}

__global__ void __launch_bounds__(THREADS) sum_partials(const float *partials, int count, float *total) {
    float own = 0.0f;
    for (int i = threadIdx.x; i < count; i += THREADS) {
        own += partials[i];
    }
    own = block_sum(own);
    if (threadIdx.x == 0) {
        *total = own;
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const int64_t count = inputs[0].shape[0];
    const int64_t tiles = (count + TILE - 1) / TILE;
    const int blocks = static_cast<int>(tiles < 1056 ? tiles : 1056);
    float *partials = static_cast<float *>(workspace);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    sum_tiles<<<blocks, THREADS, 0, on>>>(static_cast<const float *>(inputs[0].data), count, partials);
    sum_partials<<<1, THREADS, 0, on>>>(partials, blocks, static_cast<float *>(outputs[0].data));
    return cudaGetLastError();
}
