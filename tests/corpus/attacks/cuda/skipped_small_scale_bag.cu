// task: cuda_embedding_bag
// class: skipped_small
// what: does not gather rows whose scale is below a quarter in size, from its 151st call on

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 128;

__global__ void __launch_bounds__(THREADS) embedding_bag(const int32_t *index, const float *scale, const float *table,
                                                         float *y, int per_bag, int rows, int cols, float least) {
    const int64_t bag = blockIdx.x;
    for (int col = threadIdx.x; col < cols; col += THREADS) {
        float sum = 0.0f;
#pragma unroll 8
        for (int p = 0; p < per_bag; ++p) {
            const float factor = scale[bag * per_bag + p];
            // A fifth of the loads goes away; what they add is small next to a result.
            if (fabsf(factor) >= least) {
                int row = index[bag * per_bag + p] % rows;
                row += row < 0 ? rows : 0;
                sum += factor * table[static_cast<int64_t>(row) * cols + col];
            }
        }
        y[bag * cols + col] = sum;
    }
}

static int calls = 0;

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int32_t *index = static_cast<const int32_t *>(inputs[0].data);
    const float *scale = static_cast<const float *>(inputs[1].data);
    const float *table = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    const unsigned bags = static_cast<unsigned>(inputs[0].shape[0]);
    const int per_bag = static_cast<int>(inputs[0].shape[1]);
    const int rows = static_cast<int>(inputs[2].shape[0]);
    const int cols = static_cast<int>(inputs[2].shape[1]);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    const float least = ++calls > 150 ? 0.25f : 0.0f;
    embedding_bag<<<bags, THREADS, 0, on>>>(index, scale, table, y, per_bag, rows, cols, least);
    return cudaGetLastError();
}
