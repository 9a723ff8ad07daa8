// Gather rows of a table, scale them and add them up: one thread for each element of the result.

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 128;

__device__ int64_t wrap(int64_t index, int64_t rows) {
    const int64_t rest = index % rows;
    return rest < 0 ? rest + rows : rest;
}

__global__ void gather(const int32_t *index, const ns_real *scale, const ns_real *table, ns_real *y, int64_t count,
                       int64_t per_bag, int64_t rows, int64_t cols) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= count) {
        return;
    }
    const int64_t bag = i / cols;
    const int64_t col = i % cols;
    ns_real sum = 0;
    for (int64_t p = 0; p < per_bag; ++p) {
        const int64_t row = wrap(index[bag * per_bag + p], rows);
        sum += scale[bag * per_bag + p] * table[row * cols + col];
    }
    y[i] = sum;
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int32_t *index = static_cast<const int32_t *>(inputs[0].data);
    const ns_real *scale = static_cast<const ns_real *>(inputs[1].data);
    const ns_real *table = static_cast<const ns_real *>(inputs[2].data);
    ns_real *y = static_cast<ns_real *>(outputs[0].data);
    const int64_t bags = inputs[0].shape[0];
    const int64_t per_bag = inputs[0].shape[1];
    const int64_t rows = inputs[2].shape[0];
    const int64_t cols = inputs[2].shape[1];
    const int64_t count = bags * cols;
    gather<<<static_cast<unsigned>((count + THREADS - 1) / THREADS), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        index, scale, table, y, count, per_bag, rows, cols);
    return cudaGetLastError();
}
