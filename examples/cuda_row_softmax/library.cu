// Library baseline: one block per row computes the maximum and the sum of the row with cub::BlockReduce.
// Neither cuBLAS nor CUB has a softmax, so the exponential and the scaling are written here.

#include "nightshift.h"

#include <cub/block/block_reduce.cuh>
#include <cuda/std/functional>
#include <cuda_runtime.h>

constexpr int THREADS = 256;

using Reduction = cub::BlockReduce<float, THREADS>;

struct Maximum {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Returns the reduction of all values of the block in every thread: CUB returns it in the first thread only.
template <typename Operator>
__device__ float reduce_block(float value, Operator combine, Reduction::TempStorage &storage, float &shared) {
    const float result = Reduction(storage).Reduce(value, combine);
    if (threadIdx.x == 0) {
        shared = result;
    }
    __syncthreads();
    const float everywhere = shared;
    // The next reduction overwrites `storage` and `shared`.
    __syncthreads();
    return everywhere;
}

__global__ void __launch_bounds__(THREADS) softmax(const float *__restrict__ x, float *__restrict__ y, int64_t cols) {
    __shared__ Reduction::TempStorage storage;
    __shared__ float shared;
    const float *from = x + static_cast<int64_t>(blockIdx.x) * cols;
    float *to = y + static_cast<int64_t>(blockIdx.x) * cols;

    // Threads without an element contribute the neutral element of each reduction.
    float largest = -INFINITY;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        largest = fmaxf(largest, from[col]);
    }
    largest = reduce_block(largest, Maximum{}, storage, shared);

    float sum = 0.0f;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        sum += expf(from[col] - largest);
    }
    sum = reduce_block(sum, cuda::std::plus<>{}, storage, shared);

    const float scale = 1.0f / sum;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        to[col] = expf(from[col] - largest) * scale;
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const unsigned rows = static_cast<unsigned>(inputs[0].shape[0]);
    softmax<<<rows, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const float *>(inputs[0].data),
                                                                     static_cast<float *>(outputs[0].data),
                                                                     inputs[0].shape[1]);
    return static_cast<int>(cudaGetLastError());
}
