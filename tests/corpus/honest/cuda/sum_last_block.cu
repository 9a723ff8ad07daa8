// task: cuda_sum_reduction
// style: last_block_ticket
// what: one kernel; the block that takes the last ticket adds the partial sums, and the ticket counter wraps back to zero

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr unsigned MAX_BLOCKS = 1024;

__device__ float block_sum(float value) {
    __shared__ float shared[THREADS / 32];
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_down_sync(0xffffffffu, value, offset);
    }
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = 0.0f;
    for (int warp = 0; warp < THREADS / 32; ++warp) {
        value += shared[warp];
    }
    __syncthreads();
    return value;
}

__global__ void __launch_bounds__(THREADS) sum(const float *__restrict__ x, int64_t count, float *partials,
                                               unsigned *ticket, float *total) {
    __shared__ bool is_last;
    const int64_t threads = static_cast<int64_t>(gridDim.x) * THREADS;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    const int64_t vectors = count / 4;
    float own = 0.0f;
    for (int64_t i = first; i < vectors; i += threads) {
        const float4 v = reinterpret_cast<const float4 *>(x)[i];
        own += (v.x + v.y) + (v.z + v.w);
    }
    const int64_t tail = vectors * 4 + first;
    if (tail < count) {
        own += x[tail];
    }
    const float block = block_sum(own);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = block;
        // The partial sum has to be visible to the device before the ticket is.
        __threadfence();
        // atomicInc sets the counter to zero when it takes the last ticket, so each call finds zero.
        is_last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!is_last) {
        return;
    }
    __threadfence();
    float rest = 0.0f;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += THREADS) {
        rest += __ldcg(partials + i);
    }
    rest = block_sum(rest);
    if (threadIdx.x == 0) {
        *total = rest;
    }
}

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    unsigned *ticket = nullptr;
    cudaError_t status = cudaMalloc(&ticket, sizeof *ticket);
    if (status == cudaSuccess) {
        status = cudaMemset(ticket, 0, sizeof *ticket);
    }
    *state = ticket;
    return status;
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const int64_t count = inputs[0].shape[0];
    const int64_t wanted = (count / 4 + THREADS - 1) / THREADS;
    // At least one block, and enough threads for the up to three elements that fill no vector.
    const unsigned blocks = wanted < 1 ? 1 : wanted > MAX_BLOCKS ? MAX_BLOCKS : static_cast<unsigned>(wanted);
    sum<<<blocks, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), count, static_cast<float *>(workspace),
        static_cast<unsigned *>(state), static_cast<float *>(outputs[0].data));
    return cudaGetLastError();
}

NS_EXPORT void ns_free(void *state) {
    cudaFree(state);
}
