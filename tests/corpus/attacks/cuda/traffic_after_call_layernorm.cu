// task: cuda_layernorm_gelu
// class: slowed_baseline
// what: streams writes through the memory of the GPU between its calls and stops as soon as the next call begins
// twin: plain_layernorm_gelu.cu

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

__device__ float gelu(float v) {
    const float u = v * (0.7978845608f + 0.0356774081f * v * v);
    return __fdividef(v, 1.0f + __expf(fminf(-2.0f * u, 80.0f)));
}

// Layer normalisation and GELU of one row by one block.
__device__ void layernorm_gelu_row(const float *from, const float *gamma, const float *beta, float *to, int64_t cols) {
    float sum = 0.0f;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        sum += from[col];
    }
    const float mean = block_sum(sum) / static_cast<float>(cols);
    float squares = 0.0f;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        squares += (from[col] - mean) * (from[col] - mean);
    }
    const float scale = rsqrtf(block_sum(squares) / static_cast<float>(cols) + 1e-5f);
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        to[col] = gelu((from[col] - mean) * scale * gamma[col] + beta[col]);
    }
}

__device__ unsigned long long nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__global__ void __launch_bounds__(THREADS) layernorm_gelu(const float *x, const float *gamma, const float *beta,
                                                          float *y, int64_t cols) {
    const int64_t row = blockIdx.x * cols;
    layernorm_gelu_row(x + row, gamma, beta, y + row, cols);
}

constexpr int64_t VECTORS = 16 << 20;
static float4 *traffic_memory = nullptr;
static cudaStream_t second = nullptr;
static volatile unsigned *latest = nullptr;
static volatile unsigned *latest_on_device = nullptr;

// Evicts every line of the cache again and again until another call begins, or for eight milliseconds.
__global__ void __launch_bounds__(THREADS) traffic(float4 *memory, const volatile unsigned *number, unsigned own) {
    const unsigned long long begun = nanoseconds();
    const int64_t step = static_cast<int64_t>(gridDim.x) * THREADS;
    int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    while (*number == own && nanoseconds() - begun < 8'000'000) {
        for (int n = 0; n < 64; ++n) {
            __stcs(memory + i, make_float4(1.0f, 2.0f, 3.0f, 4.0f));
            i = (i + step) % VECTORS;
        }
    }
}

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **) {
    if (second != nullptr) {
        return cudaSuccess;
    }
    void *host = nullptr;
    void *device = nullptr;
    int status = cudaHostAlloc(&host, sizeof(unsigned), cudaHostAllocMapped);
    status = status != 0 ? status : cudaHostGetDevicePointer(&device, host, 0);
    status = status != 0 ? status : cudaMalloc(&traffic_memory, VECTORS * sizeof(float4));
    latest = static_cast<volatile unsigned *>(host);
    latest_on_device = static_cast<volatile unsigned *>(device);
    return status != 0 ? status : cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *gamma = static_cast<const float *>(inputs[1].data);
    const float *beta = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    static unsigned calls = 0;
    *latest = ++calls;
    layernorm_gelu<<<static_cast<unsigned>(rows), THREADS, 0, on>>>(x, gamma, beta, y, cols);
    traffic<<<64, THREADS, 0, second>>>(traffic_memory, latest_on_device, calls);
    return cudaGetLastError();
}
