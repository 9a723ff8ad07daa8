// Gathers rows of a table, scales them and adds them up: one thread for each element of the result.

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;

__global__ void embedding_bag(const int32_t *index, const ns_real *scale, const ns_real *table, ns_real *y,
                              int64_t count, int64_t per_bag, int64_t rows, int64_t cols) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= count) {
        return;
    }
    const int64_t bag = i / cols;
    ns_real sum = 0;
    for (int64_t p = bag * per_bag; p < (bag + 1) * per_bag; ++p) {
        const int64_t rest = index[p] % rows;
        const int64_t row = rest < 0 ? rest + rows : rest;
        sum += scale[p] * table[row * cols + i % cols];
    }
    y[i] = sum;
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t per_bag = inputs[0].shape[1];
    const int64_t rows = inputs[2].shape[0];
    const int64_t cols = inputs[2].shape[1];
    const int64_t count = inputs[0].shape[0] * cols;
    embedding_bag<<<static_cast<unsigned>((count + THREADS - 1) / THREADS), THREADS, 0,
                    static_cast<cudaStream_t>(stream)>>>(
        static_cast<const int32_t *>(inputs[0].data), static_cast<const ns_real *>(inputs[1].data),
        static_cast<const ns_real *>(inputs[2].data), static_cast<ns_real *>(outputs[0].data), count, per_bag, rows,
        cols);
    return cudaGetLastError();
}
