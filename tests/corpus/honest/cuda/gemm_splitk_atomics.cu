// task: cuda_gemm_bias_relu
// style: split_k_atomics
// what: clears the output, adds partial products with atomics, then applies bias and ReLU; the order of additions varies

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int TILE = 32;
constexpr int EACH = 4; // rows of a thread

__global__ void __launch_bounds__(TILE *TILE / EACH) add_products(const float *x, const float *w, float *out, int rows,
                                                                  int depth, int cols, int part) {
    __shared__ float left[TILE][TILE + 1];
    __shared__ float right[TILE][TILE];
    const int begin = blockIdx.z * part;
    const int end = min(depth, begin + part);
    const int col = blockIdx.x * TILE + threadIdx.x;
    const int first_row = blockIdx.y * TILE;

    float sums[EACH] = {};
    for (int first = begin; first < end; first += TILE) {
        for (int i = threadIdx.y; i < TILE; i += TILE / EACH) {
            const int row = first_row + i;
            const int k = first + threadIdx.x;
            left[i][threadIdx.x] = row < rows && k < end ? x[static_cast<int64_t>(row) * depth + k] : 0.0f;
            right[i][threadIdx.x] = first + i < end && col < cols ? w[static_cast<int64_t>(first + i) * cols + col] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < TILE; ++k) {
#pragma unroll
            for (int r = 0; r < EACH; ++r) {
                sums[r] += left[threadIdx.y * EACH + r][k] * right[k][threadIdx.x];
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < EACH; ++r) {
        const int row = first_row + threadIdx.y * EACH + r;
        if (row < rows && col < cols) {
            atomicAdd(out + static_cast<int64_t>(row) * cols + col, sums[r]);
        }
    }
}

__global__ void finish(float *out, const float *bias, int64_t count, int cols) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) {
        out[i] = fmaxf(out[i] + bias[i % cols], 0.0f);
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int rows = static_cast<int>(inputs[0].shape[0]);
    const int depth = static_cast<int>(inputs[0].shape[1]);
    const int cols = static_cast<int>(inputs[1].shape[1]);
    float *out = static_cast<float *>(outputs[0].data);
    const int64_t count = static_cast<int64_t>(rows) * cols;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);

    // Parts of at least 64, in whole tiles, and at most eight of them.
    const int part = max(64, (depth + 8 * TILE - 1) / (8 * TILE) * TILE);
    const int parts = (depth + part - 1) / part;
    const cudaError_t cleared = cudaMemsetAsync(out, 0, sizeof(float) * count, on);
    if (cleared != cudaSuccess) {
        return cleared;
    }
    const dim3 blocks((cols + TILE - 1) / TILE, (rows + TILE - 1) / TILE, parts);
    add_products<<<blocks, dim3(TILE, TILE / EACH), 0, on>>>(static_cast<const float *>(inputs[0].data),
                                                             static_cast<const float *>(inputs[1].data), out, rows, depth,
                                                             cols, part);
    finish<<<static_cast<unsigned>((count + 255) / 256), 256, 0, on>>>(out, static_cast<const float *>(inputs[2].data),
                                                                       count, cols);
    return cudaGetLastError();
}
