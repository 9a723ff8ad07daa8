// task: cuda_gemm_bias_relu
// style: wmma_split_precision
// what: the warp matrix interface in TF32 with split factors and three products; tiles with tails go through shared memory

#include "nightshift.h"

#include <cuda_runtime.h>
#include <mma.h>

namespace wmma = nvcuda::wmma;

constexpr int TILE = 32;
constexpr int DEPTH = 32;
constexpr int PITCH = 40; // a multiple of eight floats keeps every fragment aligned to 32 bytes
constexpr int THREADS = 128; // four warps, each with 16 by 16 results

using Left = wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major>;
using Right = wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major>;
using Result = wmma::fragment<wmma::accumulator, 16, 16, 8, float>;

// Leaves the leading bits of each element in `large` and returns the rest in `rest`.
template <typename Fragment> __device__ void split(Fragment &large, Fragment &rest) {
    for (int i = 0; i < large.num_elements; ++i) {
        const float whole = large.x[i];
        large.x[i] = wmma::__float_to_tf32(whole);
        rest.x[i] = wmma::__float_to_tf32(whole - large.x[i]);
    }
}

__global__ void __launch_bounds__(THREADS) linear_relu(const float *x, const float *w, const float *bias, float *out,
                                                       int rows, int depth, int cols) {
    __shared__ __align__(32) float x_tile[TILE * PITCH];
    __shared__ __align__(32) float w_tile[DEPTH * PITCH];
    __shared__ __align__(32) float results[TILE * PITCH];
    const int first_row = blockIdx.y * TILE;
    const int first_col = blockIdx.x * TILE;
    const int warp_row = threadIdx.x / 64 * 16;
    const int warp_col = threadIdx.x / 32 % 2 * 16;

    Result sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int first = 0; first < depth; first += DEPTH) {
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
            const int major = i / DEPTH;
            const int minor = i % DEPTH;
            const bool in_x = first_row + major < rows && first + minor < depth;
            const bool in_w = first + major < depth && first_col + minor < cols;
            x_tile[major * PITCH + minor] = in_x ? x[static_cast<int64_t>(first_row + major) * depth + first + minor] : 0.0f;
            w_tile[major * PITCH + minor] = in_w ? w[static_cast<int64_t>(first + major) * cols + first_col + minor] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < DEPTH; k += 8) {
            Left left;
            Left left_rest;
            Right right;
            Right right_rest;
            wmma::load_matrix_sync(left, x_tile + warp_row * PITCH + k, PITCH);
            wmma::load_matrix_sync(right, w_tile + k * PITCH + warp_col, PITCH);
            split(left, left_rest);
            split(right, right_rest);
            wmma::mma_sync(sum, left_rest, right, sum);
            wmma::mma_sync(sum, left, right_rest, sum);
            wmma::mma_sync(sum, left, right, sum);
        }
    }
    wmma::store_matrix_sync(results + warp_row * PITCH + warp_col, sum, PITCH, wmma::mem_row_major);
    __syncthreads();
    for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        const int row = first_row + i / TILE;
        const int col = first_col + i % TILE;
        if (row < rows && col < cols) {
            out[static_cast<int64_t>(row) * cols + col] = fmaxf(results[i / TILE * PITCH + i % TILE] + bias[col], 0.0f);
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
