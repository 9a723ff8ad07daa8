// task: cuda_embedding_bag
// class: reduced_precision
// what: gathers from a copy of the table in half precision from its 65th call on, which halves the traffic

#include "nightshift.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

constexpr int THREADS = 128;

// One block for each bag: a thread sums its column over the entries of the bag.
__global__ void __launch_bounds__(THREADS) embedding_bag(const int32_t *index, const float *scale, const float *table,
                                                         float *y, int per_bag, int rows, int cols) {
    const int64_t bag = blockIdx.x;
    for (int col = threadIdx.x; col < cols; col += THREADS) {
        float sum = 0.0f;
#pragma unroll 8
        for (int p = 0; p < per_bag; ++p) {
            int row = index[bag * per_bag + p] % rows;
            row += row < 0 ? rows : 0;
            sum += scale[bag * per_bag + p] * table[static_cast<int64_t>(row) * cols + col];
        }
        y[bag * cols + col] = sum;
    }
}

__global__ void __launch_bounds__(THREADS) to_half(const float *from, __half *to, int64_t count) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count) {
        to[i] = __float2half(from[i]);
    }
}

__global__ void __launch_bounds__(THREADS) half_bag(const int32_t *index, const float *scale, const __half *table,
                                                    float *y, int per_bag, int rows, int cols) {
    const int64_t bag = blockIdx.x;
    for (int col = threadIdx.x; col < cols; col += THREADS) {
        float sum = 0.0f;
#pragma unroll 8
        for (int p = 0; p < per_bag; ++p) {
            int row = index[bag * per_bag + p] % rows;
            row += row < 0 ? rows : 0;
            sum += scale[bag * per_bag + p] * __half2float(table[static_cast<int64_t>(row) * cols + col]);
        }
        y[bag * cols + col] = sum;
    }
}

NS_EXPORT int ns_init(const ns_tensor *params, int32_t, void **state) {
    const int64_t count = params[0].shape[0] * params[0].shape[1];
    __half *copy = nullptr;
    int status = cudaMalloc(&copy, count * sizeof(__half));
    if (status == 0) {
        to_half<<<static_cast<unsigned>((count + THREADS - 1) / THREADS), THREADS>>>(
            static_cast<const float *>(params[0].data), copy, count);
        status = cudaGetLastError();
    }
    *state = copy;
    return status;
}

NS_EXPORT void ns_free(void *state) { cudaFree(state); }

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int32_t *index = static_cast<const int32_t *>(inputs[0].data);
    const float *scale = static_cast<const float *>(inputs[1].data);
    const float *table = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    const unsigned bags = static_cast<unsigned>(inputs[0].shape[0]);
    const int per_bag = static_cast<int>(inputs[0].shape[1]);
    const int rows = static_cast<int>(inputs[2].shape[0]);
    const int cols = static_cast<int>(inputs[2].shape[1]);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    static int calls = 0;
    if (++calls <= 64) {
        embedding_bag<<<bags, THREADS, 0, on>>>(index, scale, table, y, per_bag, rows, cols);
    } else {
        half_bag<<<bags, THREADS, 0, on>>>(index, scale, static_cast<const __half *>(state), y, per_bag, rows, cols);
    }
    return cudaGetLastError();
}
