// A matrix product with bias and ReLU: one thread for each element of the result.

#include "nightshift.h"

#include <cuda_runtime.h>

__global__ void linear_relu(const ns_real *x, const ns_real *w, const ns_real *bias, ns_real *out, int64_t rows,
                            int64_t depth, int64_t cols) {
    const int64_t col = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t row = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
    if (row >= rows || col >= cols) {
        return;
    }
    ns_real sum = 0;
    for (int64_t i = 0; i < depth; ++i) {
        sum += x[row * depth + i] * w[i * cols + col];
    }
    sum += bias[col];
    out[row * cols + col] = sum > 0 ? sum : 0;
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const ns_real *x = static_cast<const ns_real *>(inputs[0].data);
    const ns_real *w = static_cast<const ns_real *>(inputs[1].data);
    const ns_real *bias = static_cast<const ns_real *>(inputs[2].data);
    ns_real *out = static_cast<ns_real *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t depth = inputs[0].shape[1];
    const int64_t cols = inputs[1].shape[1];

    const dim3 threads(16, 16);
    const dim3 blocks(static_cast<unsigned>((cols + 15) / 16), static_cast<unsigned>((rows + 15) / 16));
    linear_relu<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(x, w, bias, out, rows, depth, cols);
    return cudaGetLastError();
}
