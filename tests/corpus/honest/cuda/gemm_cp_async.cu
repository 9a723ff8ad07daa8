// task: cuda_gemm_bias_relu
// style: inline_ptx_cp_async_pipeline
// what: 64 by 64 tiles in single precision; cp.async with zero fill keeps three stages of tiles in flight

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int TILE = 64;
constexpr int DEPTH = 16;
constexpr int STAGES = 3;
constexpr int THREADS = 256;
constexpr int PITCH = DEPTH + 1; // keeps rows of the x tile in different banks

// Copies four bytes, or writes four zero bytes if the element does not exist.
__device__ __forceinline__ void copy_async(float *shared, const float *global, bool exists) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    const int bytes = exists ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" : : "r"(to), "l"(global), "r"(bytes) : "memory");
}

__device__ __forceinline__ void commit() {
    asm volatile("cp.async.commit_group;" : : : "memory");
}

template <int PENDING> __device__ __forceinline__ void wait_for_all_but() {
    asm volatile("cp.async.wait_group %0;" : : "n"(PENDING) : "memory");
}

__global__ void __launch_bounds__(THREADS) linear_relu(const float *x, const float *w, const float *bias, float *out,
                                                       int rows, int depth, int cols) {
    __shared__ float x_tiles[STAGES][TILE * PITCH];
    __shared__ float w_tiles[STAGES][DEPTH * TILE];
    const int first_row = blockIdx.y * TILE;
    const int first_col = blockIdx.x * TILE;
    const int own_row = threadIdx.x / 16 * 4;
    const int own_col = threadIdx.x % 16 * 4;
    const int steps = (depth + DEPTH - 1) / DEPTH;

    const auto request = [&](int step) {
        if (step < steps) {
            float *x_tile = x_tiles[step % STAGES];
            float *w_tile = w_tiles[step % STAGES];
            const int first = step * DEPTH;
            for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
                const int row = i / DEPTH;
                const int k = i % DEPTH;
                const bool exists = first_row + row < rows && first + k < depth;
                copy_async(x_tile + row * PITCH + k,
                           exists ? x + static_cast<int64_t>(first_row + row) * depth + first + k : x, exists);
            }
            for (int i = threadIdx.x; i < DEPTH * TILE; i += THREADS) {
                const int k = i / TILE;
                const int col = i % TILE;
                const bool exists = first + k < depth && first_col + col < cols;
                copy_async(w_tile + i, exists ? w + static_cast<int64_t>(first + k) * cols + first_col + col : w, exists);
            }
        }
        // Empty groups keep the count of groups equal to the count of steps.
        commit();
    };

    for (int stage = 0; stage < STAGES - 1; ++stage) {
        request(stage);
    }
    float sums[4][4] = {};
    for (int step = 0; step < steps; ++step) {
        wait_for_all_but<STAGES - 2>();
        // After this barrier the tiles of this step are complete and those of the step before are no longer read.
        __syncthreads();
        request(step + STAGES - 1);
        const float *x_tile = x_tiles[step % STAGES];
        const float *w_tile = w_tiles[step % STAGES];
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            float left[4];
            float right[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                left[i] = x_tile[(own_row + i) * PITCH + k];
                right[i] = w_tile[k * TILE + own_col + i];
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    sums[i][j] += left[i] * right[j];
                }
            }
        }
    }
    wait_for_all_but<0>();

    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
            const int row = first_row + own_row + i;
            const int col = first_col + own_col + j;
            if (row < rows && col < cols) {
                out[static_cast<int64_t>(row) * cols + col] = fmaxf(sums[i][j] + bias[col], 0.0f);
            }
        }
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int rows = static_cast<int>(inputs[0].shape[0]);
    const int depth = static_cast<int>(inputs[0].shape[1]);
    const int cols = static_cast<int>(inputs[1].shape[1]);
    const dim3 blocks((cols + TILE - 1) / TILE, (rows + TILE - 1) / TILE);
    linear_relu<<<blocks, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
        static_cast<const float *>(inputs[2].data), static_cast<float *>(outputs[0].data), rows, depth, cols);
    return cudaGetLastError();
}
