// A matrix product with bias in bfloat16: one thread for each element of the result.

#include "nightshift.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void linear(const ns_bf16 *x, const ns_bf16 *w, const ns_real *bias, ns_bf16 *out, int64_t rows,
                       int64_t depth, int64_t cols) {
    const int64_t col = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t row = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
    if (row >= rows || col >= cols) {
        return;
    }
    ns_real sum = 0;
    for (int64_t i = 0; i < depth; ++i) {
        sum += ns_real(x[row * depth + i]) * ns_real(w[i * cols + col]);
    }
    out[row * cols + col] = ns_bf16(sum + bias[col]);
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t rows = inputs[0].shape[0];
    const int64_t depth = inputs[0].shape[1];
    const int64_t cols = inputs[1].shape[1];
    const dim3 threads(16, 16);
    const dim3 blocks(static_cast<unsigned>((cols + 15) / 16), static_cast<unsigned>((rows + 15) / 16));
    linear<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const ns_bf16 *>(inputs[0].data), static_cast<const ns_bf16 *>(inputs[1].data),
        static_cast<const ns_real *>(inputs[2].data), static_cast<ns_bf16 *>(outputs[0].data), rows, depth, cols);
    return cudaGetLastError();
}
