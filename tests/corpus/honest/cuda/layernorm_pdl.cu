// task: cuda_layernorm_gelu
// style: programmatic_dependent_launch
// what: the second of two kernels starts early, loads gamma and beta, and waits with griddepcontrol for the statistics

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 128;
constexpr int WARPS = THREADS / 32;
constexpr int SPAN = 8; // columns that a thread holds gamma and beta for

__device__ __forceinline__ void let_next_kernel_start() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__device__ __forceinline__ void wait_for_previous_kernel() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// One warp for each row.
__global__ void __launch_bounds__(THREADS) row_statistics(const float *x, float *means, float *scales, int64_t rows,
                                                          int64_t cols) {
    let_next_kernel_start();
    const int64_t row = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / 32;
    if (row >= rows) {
        return;
    }
    const float *from = x + row * cols;
    float sum = 0.0f;
    for (int64_t col = threadIdx.x % 32; col < cols; col += 32) {
        sum += from[col];
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    }
    const float mean = sum / static_cast<float>(cols);
    float squares = 0.0f;
    for (int64_t col = threadIdx.x % 32; col < cols; col += 32) {
        const float distance = from[col] - mean;
        squares += distance * distance;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        squares += __shfl_xor_sync(0xffffffffu, squares, offset);
    }
    if (threadIdx.x % 32 == 0) {
        means[row] = mean;
        scales[row] = 1.0f / sqrtf(squares / static_cast<float>(cols) + 1e-5f);
    }
}

// blockIdx.x chooses the columns, blockIdx.y the first row.
__global__ void __launch_bounds__(THREADS) normalise_gelu(const float *x, const float *means, const float *scales,
                                                          const float *gamma, const float *beta, float *y, int64_t rows,
                                                          int64_t cols) {
    const int64_t first = static_cast<int64_t>(blockIdx.x) * THREADS * SPAN + threadIdx.x;
    float g[SPAN];
    float b[SPAN];
#pragma unroll
    for (int i = 0; i < SPAN; ++i) {
        const int64_t col = first + i * THREADS;
        g[i] = col < cols ? gamma[col] : 0.0f;
        b[i] = col < cols ? beta[col] : 0.0f;
    }
    // Nothing that the first kernel writes is read before this line, and nothing is written before it.
    wait_for_previous_kernel();
    for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
        const float mean = means[row];
        const float scale = scales[row];
#pragma unroll
        for (int i = 0; i < SPAN; ++i) {
            const int64_t col = first + i * THREADS;
            if (col < cols) {
                const float n = (x[row * cols + col] - mean) * scale * g[i] + b[i];
                const float u = n * (0.7978845608028654f + 0.03567740814f * n * n);
                y[row * cols + col] = n / (1.0f + expf(-2.0f * u));
            }
        }
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *gamma = static_cast<const float *>(inputs[1].data);
    const float *beta = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    float *means = static_cast<float *>(workspace);
    float *scales = means + rows;

    row_statistics<<<static_cast<unsigned>((rows + WARPS - 1) / WARPS), THREADS, 0, on>>>(x, means, scales, rows, cols);
    const cudaError_t first = cudaGetLastError();
    if (first != cudaSuccess) {
        return first;
    }

    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    const int64_t wide = (cols + THREADS * SPAN - 1) / (THREADS * SPAN);
    config.gridDim = dim3(static_cast<unsigned>(wide), static_cast<unsigned>(rows < 512 ? rows : 512));
    config.blockDim = dim3(THREADS);
    config.stream = on;
    config.attrs = &early;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, normalise_gelu, x, static_cast<const float *>(means),
                              static_cast<const float *>(scales), gamma, beta, y, rows, cols);
}
