// task: cuda_column_moments
// style: cub_block_reduce
// what: one block per column; CUB adds shifted sums and squares, the first element of the column is the shift

#include "nightshift.h"

#include <cub/block/block_reduce.cuh>
#include <cuda_runtime.h>

constexpr int THREADS = 128;

struct Sums {
    double plain;
    double squared;
};

struct Add {
    __device__ Sums operator()(const Sums &a, const Sums &b) const {
        return {a.plain + b.plain, a.squared + b.squared};
    }
};

using Reduction = cub::BlockReduce<Sums, THREADS>;

__global__ void __launch_bounds__(THREADS) moments(const float *x, float *mean, float *deviation, int64_t rows,
                                                   int64_t cols) {
    __shared__ typename Reduction::TempStorage storage;
    const int64_t col = blockIdx.x;
    const double shift = x[col];
    Sums own{0.0, 0.0};
    for (int64_t row = threadIdx.x; row < rows; row += THREADS) {
        const double distance = x[row * cols + col] - shift;
        own.plain += distance;
        own.squared += distance * distance;
    }
    const Sums all = Reduction(storage).Reduce(own, Add{});
    // Only the first thread has the result.
    if (threadIdx.x == 0) {
        const double offset = all.plain / static_cast<double>(rows);
        const double variance = all.squared / static_cast<double>(rows) - offset * offset;
        mean[col] = static_cast<float>(shift + offset);
        deviation[col] = static_cast<float>(sqrt(variance > 0.0 ? variance : 0.0));
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    moments<<<static_cast<unsigned>(inputs[0].shape[1]), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), static_cast<float *>(outputs[0].data),
        static_cast<float *>(outputs[1].data), inputs[0].shape[0], inputs[0].shape[1]);
    return cudaGetLastError();
}
