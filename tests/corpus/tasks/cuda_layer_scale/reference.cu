// A residual branch with a layer scale: one thread for each element of the result.

#include "nightshift.h"

#include <cuda_runtime.h>

__global__ void branch(const ns_real *x, const ns_real *w, const ns_real *b, const ns_real *gamma, ns_real *out,
                       int64_t tokens, int64_t width) {
    const int64_t col = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t token = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
    if (token >= tokens || col >= width) {
        return;
    }
    ns_real v = b[col];
    for (int64_t i = 0; i < width; ++i) {
        v += x[token * width + i] * w[i * width + col];
    }
    const ns_real root = static_cast<ns_real>(0.7978845608028654); // sqrt(2 / pi)
    const ns_real cubic = static_cast<ns_real>(0.044715);
    const ns_real gelu = v / 2 * (1 + tanh(root * (v + cubic * v * v * v)));
    out[token * width + col] = x[token * width + col] + gamma[col] * gelu;
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t tokens = inputs[0].shape[0];
    const int64_t width = inputs[0].shape[1];
    const dim3 threads(16, 16);
    const dim3 blocks(static_cast<unsigned>((width + 15) / 16), static_cast<unsigned>((tokens + 15) / 16));
    branch<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const ns_real *>(inputs[0].data), static_cast<const ns_real *>(inputs[1].data),
        static_cast<const ns_real *>(inputs[2].data), static_cast<const ns_real *>(inputs[3].data),
        static_cast<ns_real *>(outputs[0].data), tokens, width);
    return cudaGetLastError();
}
