// Residual addition and root mean square normalisation: one block for each row, two passes over it.

#include "nightshift.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int THREADS = 256;

__global__ void rmsnorm(const ns_bf16 *x, const ns_bf16 *residual, const ns_bf16 *weight, ns_bf16 *out, int64_t cols) {
    __shared__ ns_real shared[THREADS];
    const int64_t first = blockIdx.x * cols;

    ns_real squares = 0;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        const ns_real sum = ns_real(x[first + col]) + ns_real(residual[first + col]);
        squares += sum * sum;
    }
    shared[threadIdx.x] = squares;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            shared[threadIdx.x] += shared[threadIdx.x + half];
        }
        __syncthreads();
    }
    const ns_real factor = 1 / sqrt(shared[0] / static_cast<ns_real>(cols) + static_cast<ns_real>(1e-6));

    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        const ns_real sum = ns_real(x[first + col]) + ns_real(residual[first + col]);
        out[first + col] = ns_bf16(sum * factor * ns_real(weight[col]));
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const ns_bf16 *x = static_cast<const ns_bf16 *>(inputs[0].data);
    const ns_bf16 *residual = static_cast<const ns_bf16 *>(inputs[1].data);
    const ns_bf16 *weight = static_cast<const ns_bf16 *>(inputs[2].data);
    ns_bf16 *out = static_cast<ns_bf16 *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    rmsnorm<<<static_cast<unsigned>(rows), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(x, residual, weight, out,
                                                                                            cols);
    return cudaGetLastError();
}
