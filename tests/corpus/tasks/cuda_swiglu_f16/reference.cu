// Gated activation of half-precision matrices: one thread for each element.

#include "nightshift.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

constexpr int THREADS = 256;

__global__ void swiglu(const ns_f16 *gate, const ns_f16 *value, const ns_real *scale, ns_f16 *out, int64_t count,
                       int64_t cols) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= count) {
        return;
    }
    const ns_real g = ns_real(gate[i]);
    const ns_real v = ns_real(value[i]);
    out[i] = ns_f16(g / (1 + exp(-g)) * v * scale[i % cols]);
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const ns_f16 *gate = static_cast<const ns_f16 *>(inputs[0].data);
    const ns_f16 *value = static_cast<const ns_f16 *>(inputs[1].data);
    const ns_real *scale = static_cast<const ns_real *>(inputs[2].data);
    ns_f16 *out = static_cast<ns_f16 *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    const int64_t count = rows * cols;
    swiglu<<<static_cast<unsigned>((count + THREADS - 1) / THREADS), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        gate, value, scale, out, count, cols);
    return cudaGetLastError();
}
