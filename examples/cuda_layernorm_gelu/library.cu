// Library baseline: one block per row computes the mean and the variance of the row with cub::BlockReduce.
// Neither cuBLAS nor CUB has a layer normalisation or a GELU, so the normalisation and the activation are written here.

#include "nightshift.h"

#include <cub/block/block_reduce.cuh>
#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr float EPSILON = 1e-5f;

using Reduction = cub::BlockReduce<float, THREADS>;

// Returns the sum of all values of the block in every thread: CUB returns it in the first thread only.
__device__ float sum_block(float value, Reduction::TempStorage &storage, float &shared) {
    const float result = Reduction(storage).Sum(value);
    if (threadIdx.x == 0) {
        shared = result;
    }
    __syncthreads();
    const float everywhere = shared;
    // The next sum overwrites `storage` and `shared`.
    __syncthreads();
    return everywhere;
}

// Returns the tanh form of GELU.
__device__ float gelu(float n) {
    const float root = 0.7978845608028654f; // sqrt(2 / pi)
    return 0.5f * n * (1.0f + tanhf(root * (n + 0.044715f * n * n * n)));
}

__global__ void __launch_bounds__(THREADS)
    layernorm_gelu(const float *__restrict__ x, const float *__restrict__ gamma, const float *__restrict__ beta,
                   float *__restrict__ y, int64_t cols) {
    __shared__ Reduction::TempStorage storage;
    __shared__ float shared;
    const float *from = x + static_cast<int64_t>(blockIdx.x) * cols;
    float *to = y + static_cast<int64_t>(blockIdx.x) * cols;

    float sum = 0.0f;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        sum += from[col];
    }
    const float mean = sum_block(sum, storage, shared) / static_cast<float>(cols);

    // Squares of distances from the mean: the difference of two large sums would cancel.
    float squares = 0.0f;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        const float distance = from[col] - mean;
        squares += distance * distance;
    }
    const float variance = sum_block(squares, storage, shared) / static_cast<float>(cols);

    const float scale = 1.0f / sqrtf(variance + EPSILON);
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        to[col] = gelu((from[col] - mean) * scale * gamma[col] + beta[col]);
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const unsigned rows = static_cast<unsigned>(inputs[0].shape[0]);
    layernorm_gelu<<<rows, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
        static_cast<const float *>(inputs[2].data), static_cast<float *>(outputs[0].data), inputs[0].shape[1]);
    return static_cast<int>(cudaGetLastError());
}
