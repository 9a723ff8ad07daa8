// task: cuda_column_moments
// style: workspace_partials_merge
// what: blocks reduce chunks of rows for 32 columns with coalesced loads; a second kernel merges mean, squares and count

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int LINES = 8; // rows that a block reads at a time

struct Moments {
    float count;
    float mean;
    float squares;

    __device__ void add(float value) {
        count += 1.0f;
        const float distance = value - mean;
        mean += distance / count;
        squares += distance * (value - mean);
    }

    __device__ friend Moments operator+(const Moments &a, const Moments &b) {
        if (b.count == 0.0f) {
            return a;
        }
        if (a.count == 0.0f) {
            return b;
        }
        const float count = a.count + b.count;
        const float distance = b.mean - a.mean;
        return {count, a.mean + distance * (b.count / count),
                a.squares + b.squares + distance * distance * (a.count * b.count / count)};
    }
};

__global__ void __launch_bounds__(32 * LINES) reduce_chunks(const float *x, Moments *partials, int64_t rows, int64_t cols,
                                                           int64_t chunk) {
    __shared__ Moments shared[LINES][32];
    const int64_t col = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
    const int64_t end = min(rows, (blockIdx.y + 1) * chunk);
    Moments own{0.0f, 0.0f, 0.0f};
    if (col < cols) {
        for (int64_t row = blockIdx.y * chunk + threadIdx.y; row < end; row += LINES) {
            own.add(x[row * cols + col]);
        }
    }
    shared[threadIdx.y][threadIdx.x] = own;
    __syncthreads();
    if (threadIdx.y == 0 && col < cols) {
        for (int line = 1; line < LINES; ++line) {
            own = own + shared[line][threadIdx.x];
        }
        partials[blockIdx.y * cols + col] = own;
    }
}

__global__ void merge(const Moments *partials, float *mean, float *deviation, int64_t cols, int chunks) {
    const int64_t col = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (col >= cols) {
        return;
    }
    Moments all = partials[col];
    for (int chunk = 1; chunk < chunks; ++chunk) {
        all = all + partials[chunk * cols + col];
    }
    mean[col] = all.mean;
    deviation[col] = sqrtf(all.squares / all.count);
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    // At most 32 chunks, each of at least 64 rows.
    int64_t chunk = (rows + 31) / 32;
    chunk = chunk < 64 ? 64 : chunk;
    const unsigned chunks = static_cast<unsigned>((rows + chunk - 1) / chunk);
    if (chunks * cols * static_cast<int64_t>(sizeof(Moments)) > static_cast<int64_t>(NS_WORKSPACE_BYTES)) {
        return cudaErrorMemoryAllocation;
    }
    Moments *partials = static_cast<Moments *>(workspace);
    reduce_chunks<<<dim3(static_cast<unsigned>((cols + 31) / 32), chunks), dim3(32, LINES), 0, on>>>(
        static_cast<const float *>(inputs[0].data), partials, rows, cols, chunk);
    merge<<<static_cast<unsigned>((cols + 127) / 128), 128, 0, on>>>(partials, static_cast<float *>(outputs[0].data),
                                                                     static_cast<float *>(outputs[1].data), cols,
                                                                     static_cast<int>(chunks));
    return cudaGetLastError();
}
