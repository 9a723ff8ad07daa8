// task: cuda_gather_rows
// style: padded_copy_of_weights
// what: ns_init copies the table into rows padded to 16 bytes, so that all loads are vectors; stores fit the real columns

#include "nightshift.h"

#include <cuda_runtime.h>

#include <cstdint>

constexpr int THREADS = 128;

#define CUDA_TRY(call)                   \
    if (cudaError_t e_ = (call); e_ != cudaSuccess) \
    return static_cast<int>(e_)

struct PaddedTable {
    float4 *rows = nullptr;
    int count = 0;   // rows
    int vectors = 0; // of each row
    int cols = 0;
};

NS_EXPORT void ns_free(void *state) {
    auto *table = static_cast<PaddedTable *>(state);
    if (table) {
        cudaFree(table->rows);
    }
    delete table;
}

NS_EXPORT int ns_init(const ns_tensor *params, int32_t, void **state) {
    auto *table = new PaddedTable;
    *state = table;
    table->count = static_cast<int>(params[0].shape[0]);
    table->cols = static_cast<int>(params[0].shape[1]);
    table->vectors = (table->cols + 3) / 4;
    const size_t pitch = sizeof(float4) * table->vectors;
    const size_t width = sizeof(float) * table->cols;
    CUDA_TRY(cudaMalloc(&table->rows, pitch * table->count));
    CUDA_TRY(cudaMemset(table->rows, 0, pitch * table->count));
    CUDA_TRY(cudaMemcpy2D(table->rows, pitch, params[0].data, width, width, table->count, cudaMemcpyDeviceToDevice));
    return 0;
}

__global__ void __launch_bounds__(THREADS) gather(const int32_t *__restrict__ index, const float *__restrict__ scale,
                                                  const PaddedTable table, float *__restrict__ y, int64_t count,
                                                  int per_bag) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= count) {
        return;
    }
    const int64_t bag = i / table.vectors;
    const int vector = static_cast<int>(i % table.vectors);
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int p = 0; p < per_bag; ++p) {
        int row = __ldg(index + bag * per_bag + p) % table.count;
        row += row < 0 ? table.count : 0;
        const float factor = __ldg(scale + bag * per_bag + p);
        const float4 v = __ldg(table.rows + static_cast<int64_t>(row) * table.vectors + vector);
        sum.x += factor * v.x;
        sum.y += factor * v.y;
        sum.z += factor * v.z;
        sum.w += factor * v.w;
    }
    const int col = vector * 4;
    float *to = y + bag * table.cols + col;
    if (col + 4 <= table.cols && reinterpret_cast<uintptr_t>(to) % sizeof(float4) == 0) {
        *reinterpret_cast<float4 *>(to) = sum;
        return;
    }
    const float parts[4] = {sum.x, sum.y, sum.z, sum.w};
    for (int k = 0; k < 4 && col + k < table.cols; ++k) {
        to[k] = parts[k];
    }
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const PaddedTable &table = *static_cast<const PaddedTable *>(state);
    const int64_t count = inputs[0].shape[0] * table.vectors;
    gather<<<static_cast<unsigned>((count + THREADS - 1) / THREADS), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const int32_t *>(inputs[0].data), static_cast<const float *>(inputs[1].data), table,
        static_cast<float *>(outputs[0].data), count, static_cast<int>(inputs[0].shape[1]));
    return static_cast<int>(cudaGetLastError());
}
