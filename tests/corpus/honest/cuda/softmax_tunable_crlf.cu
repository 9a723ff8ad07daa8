// task: cuda_row_softmax
// style: tunable_crlf
// what: one block per row with a tunable block size and a tunable number of independent partial sums; CRLF line ends

#include "nightshift.h"

#include <cuda_runtime.h>

NIGHTSHIFT_TUNABLE(THREADS, 128, 64, 128, 256, 512);
NIGHTSHIFT_TUNABLE(PARTIALS, 2, 1, 2, 4);

constexpr int WARPS = THREADS / 32;

__device__ float block_reduce(float value, float *shared, bool largest) {
    for (int offset = 16; offset > 0; offset /= 2) {
        const float other = __shfl_down_sync(0xffffffffu, value, offset);
        value = largest ? fmaxf(value, other) : value + other;
    }
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = value;
    }
    __syncthreads();
    float result = shared[0];
    for (int warp = 1; warp < WARPS; ++warp) {
        result = largest ? fmaxf(result, shared[warp]) : result + shared[warp];
    }
    __syncthreads();
    return result;
}

__global__ void __launch_bounds__(THREADS) softmax(const float *x, float *y, int64_t cols) {
    __shared__ float shared[WARPS];
    const float *from = x + blockIdx.x * cols;
    float *to = y + blockIdx.x * cols;
    constexpr int STEP = THREADS * PARTIALS;

    float maxima[PARTIALS];
    for (int p = 0; p < PARTIALS; ++p) {
        maxima[p] = from[0];
    }
    for (int64_t first = threadIdx.x; first < cols; first += STEP) {
#pragma unroll
        for (int p = 0; p < PARTIALS; ++p) {
            const int64_t col = first + p * THREADS;
            if (col < cols) {
                maxima[p] = fmaxf(maxima[p], from[col]);
            }
        }
    }
    for (int p = 1; p < PARTIALS; ++p) {
        maxima[0] = fmaxf(maxima[0], maxima[p]);
    }
    const float largest = block_reduce(maxima[0], shared, true);

    float sums[PARTIALS] = {};
    for (int64_t first = threadIdx.x; first < cols; first += STEP) {
#pragma unroll
        for (int p = 0; p < PARTIALS; ++p) {
            const int64_t col = first + p * THREADS;
            if (col < cols) {
                const float value = expf(from[col] - largest);
                to[col] = value;
                sums[p] += value;
            }
        }
    }
    for (int p = 1; p < PARTIALS; ++p) {
        sums[0] += sums[p];
    }
    const float factor = 1.0f / block_reduce(sums[0], shared, false);
    // Each thread scales the elements that it wrote itself.
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        to[col] *= factor;
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    softmax<<<static_cast<unsigned>(inputs[0].shape[0]), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), static_cast<float *>(outputs[0].data), inputs[0].shape[1]);
    return cudaGetLastError();
}
