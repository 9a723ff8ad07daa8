// The sum of a vector: trees in shared memory, level by level, until one number is left.

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;

// sums[b] is the sum of the elements of block b.
__global__ void block_sums(const ns_real *values, ns_real *sums, int64_t count) {
    __shared__ ns_real shared[THREADS];
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    shared[threadIdx.x] = i < count ? values[i] : 0;
    __syncthreads();
    for (int distance = 1; distance < THREADS; distance *= 2) {
        if (threadIdx.x % (2 * distance) == 0) {
            shared[threadIdx.x] += shared[threadIdx.x + distance];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = shared[0];
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const ns_real *values = static_cast<const ns_real *>(inputs[0].data);
    ns_real *total = static_cast<ns_real *>(outputs[0].data);
    ns_real *sums = static_cast<ns_real *>(workspace);
    int64_t count = inputs[0].shape[0];

    int64_t blocks = (count + THREADS - 1) / THREADS;
    while (blocks > 1) {
        block_sums<<<static_cast<unsigned>(blocks), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(values, sums,
                                                                                                     count);
        values = sums;
        sums += blocks;
        count = blocks;
        blocks = (count + THREADS - 1) / THREADS;
    }
    block_sums<<<1, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(values, total, count);
    return cudaGetLastError();
}
