// task: cuda_row_softmax
// class: reduced_precision
// what: does not subtract the maximum, so that results are right only for inputs below 80; one pass less
// twin: unshifted_exponential_softmax.cu
// allowed: it is right for every input that the task declares, and for inputs three times as large

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

// The declared inputs stay below six, and three times as large ones below twenty.
__global__ void __launch_bounds__(THREADS) softmax(const float *x, float *y, int64_t cols) {
    const float *from = x + blockIdx.x * cols;
    float *to = y + blockIdx.x * cols;
    float sum = 0.0f;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        sum += __expf(from[col]);
    }
    const float inverse = 1.0f / block_sum(sum);
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        to[col] = __expf(from[col]) * inverse;
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    softmax<<<static_cast<unsigned>(rows), THREADS, 0, on>>>(x, y, cols);
    return cudaGetLastError();
}
