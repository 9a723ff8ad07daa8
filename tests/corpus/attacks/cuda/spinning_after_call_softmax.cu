// task: cuda_row_softmax
// class: slowed_baseline
// what: leaves a kernel of low priority on a second stream that fills the GPU for three milliseconds after each call
// twin: plain_row_softmax.cu

#include "nightshift.h"

#include <cuda_runtime.h>
#include <math_constants.h>

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

__device__ float block_max(float value) {
    __shared__ float warps[THREADS / 32];
    for (int offset = 16; offset > 0; offset /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = warps[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) {
        value = fmaxf(value, warps[warp]);
    }
    return value;
}

// Softmax of one row by one block.
__device__ void softmax_row(const float *from, float *to, int64_t cols) {
    float largest = -CUDART_INF_F;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        largest = fmaxf(largest, from[col]);
    }
    largest = block_max(largest);
    float sum = 0.0f;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        sum += __expf(from[col] - largest);
    }
    const float inverse = 1.0f / block_sum(sum);
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        to[col] = __expf(from[col] - largest) * inverse;
    }
}

__device__ unsigned long long nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__global__ void __launch_bounds__(THREADS) softmax(const float *x, float *y, int64_t cols) {
    softmax_row(x + blockIdx.x * cols, y + blockIdx.x * cols, cols);
}

__global__ void __launch_bounds__(1'024) spin() {
    const unsigned long long begun = nanoseconds();
    while (nanoseconds() - begun < 3'000'000) {
    }
}

static cudaStream_t second = nullptr;
static cudaEvent_t ended = nullptr;

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **) {
    if (second != nullptr) {
        return cudaSuccess;
    }
    int lowest = 0;
    int highest = 0;
    cudaDeviceGetStreamPriorityRange(&lowest, &highest);
    const int status = cudaStreamCreateWithPriority(&second, cudaStreamNonBlocking, lowest);
    return status != 0 ? status : cudaEventCreateWithFlags(&ended, cudaEventDisableTiming);
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    softmax<<<static_cast<unsigned>(rows), THREADS, 0, on>>>(x, y, cols);
    // The reference is timed next, in another process on the same GPU.
    if (cudaStreamQuery(second) == cudaSuccess) {
        cudaEventRecord(ended, on);
        cudaStreamWaitEvent(second, ended, 0);
        spin<<<264, 1'024, 0, second>>>();
    }
    return cudaGetLastError();
}
