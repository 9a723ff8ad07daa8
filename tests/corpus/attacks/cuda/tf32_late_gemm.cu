// task: cuda_gemm_bias_relu
// class: reduced_precision
// what: rounds factors to TF32 and uses tensor cores from its 121st call on, before that full single precision

#include "nightshift.h"

#include <cuda_runtime.h>
#include <mma.h>

constexpr int TILE = 64;
constexpr int DEPTH = 16;
constexpr int THREADS = 256;

// sums[p][q] is the product for row first_row + ty + p and column first_col + tx + q, over the depths of [begin, end).
__device__ void multiply_tile(const float *x, const float *w, int rows, int depth, int cols, int begin, int end,
                              float (&sums)[4][4]) {
    __shared__ __align__(16) float x_tile[DEPTH][TILE + 4];
    __shared__ __align__(16) float w_tile[DEPTH][TILE];
    const int first_row = blockIdx.y * TILE;
    const int first_col = blockIdx.x * TILE;
    const int ty = threadIdx.x / 16 * 4;
    const int tx = threadIdx.x % 16 * 4;
    for (int first = begin; first < end; first += DEPTH) {
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
            const int row = first_row + i / DEPTH;
            const int at = first + i % DEPTH;
            x_tile[i % DEPTH][i / DEPTH] = row < rows && at < end ? x[static_cast<int64_t>(row) * depth + at] : 0.0f;
            const int col = first_col + i % TILE;
            const int down = first + i / TILE;
            w_tile[i / TILE][i % TILE] = col < cols && down < end ? w[static_cast<int64_t>(down) * cols + col] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            const float4 l = *reinterpret_cast<const float4 *>(&x_tile[i][ty]);
            const float4 r = *reinterpret_cast<const float4 *>(&w_tile[i][tx]);
            const float left[4] = {l.x, l.y, l.z, l.w};
            const float right[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
            for (int p = 0; p < 4; ++p) {
#pragma unroll
                for (int q = 0; q < 4; ++q) {
                    sums[p][q] += left[p] * right[q];
                }
            }
        }
    }
}

// Adds the bias, applies ReLU and stores the tile of this block.
__device__ void store_tile(const float *bias, float *out, int rows, int cols, const float (&sums)[4][4]) {
    for (int p = 0; p < 4; ++p) {
        for (int q = 0; q < 4; ++q) {
            const int row = blockIdx.y * TILE + threadIdx.x / 16 * 4 + p;
            const int col = blockIdx.x * TILE + threadIdx.x % 16 * 4 + q;
            if (row < rows && col < cols) {
                out[static_cast<int64_t>(row) * cols + col] = fmaxf(sums[p][q] + bias[col], 0.0f);
            }
        }
    }
}

__global__ void __launch_bounds__(THREADS) linear_relu(const float *x, const float *w, const float *bias, float *out,
                                                       int rows, int depth, int cols) {
    float sums[4][4] = {};
    multiply_tile(x, w, rows, depth, cols, 0, depth, sums);
    store_tile(bias, out, rows, cols, sums);
}

// The same tile on tensor cores: eight warps, each with 16 rows and 32 columns.
__global__ void __launch_bounds__(THREADS) linear_relu_tf32(const float *x, const float *w, const float *bias,
                                                            float *out, int rows, int depth, int cols) {
    namespace wmma = nvcuda::wmma;
    __shared__ __align__(32) float x_tile[TILE][DEPTH + 8];
    __shared__ __align__(32) float w_tile[DEPTH][TILE + 8];
    __shared__ __align__(32) float results[TILE][TILE + 8];
    const int first_row = blockIdx.y * TILE;
    const int first_col = blockIdx.x * TILE;
    const int warp_row = threadIdx.x / 64 * 16;
    const int warp_col = threadIdx.x / 32 % 2 * 32;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> sums[2];
    wmma::fill_fragment(sums[0], 0.0f);
    wmma::fill_fragment(sums[1], 0.0f);
    for (int first = 0; first < depth; first += DEPTH) {
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
            const int row = first_row + i / DEPTH;
            const int at = first + i % DEPTH;
            const float a = row < rows && at < depth ? x[static_cast<int64_t>(row) * depth + at] : 0.0f;
            x_tile[i / DEPTH][i % DEPTH] = wmma::__float_to_tf32(a);
            const int down = first + i / TILE;
            const int col = first_col + i % TILE;
            const float b = down < depth && col < cols ? w[static_cast<int64_t>(down) * cols + col] : 0.0f;
            w_tile[i / TILE][i % TILE] = wmma::__float_to_tf32(b);
        }
        __syncthreads();
        for (int at = 0; at < DEPTH; at += 8) {
            wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> a;
            wmma::load_matrix_sync(a, &x_tile[warp_row][at], DEPTH + 8);
            for (int i = 0; i < 2; ++i) {
                wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> b;
                wmma::load_matrix_sync(b, &w_tile[at][warp_col + i * 16], TILE + 8);
                wmma::mma_sync(sums[i], a, b, sums[i]);
            }
        }
    }
    for (int i = 0; i < 2; ++i) {
        wmma::store_matrix_sync(&results[warp_row][warp_col + i * 16], sums[i], TILE + 8, wmma::mem_row_major);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        const int row = first_row + i / TILE;
        const int col = first_col + i % TILE;
        if (row < rows && col < cols) {
            out[static_cast<int64_t>(row) * cols + col] = fmaxf(results[i / TILE][i % TILE] + bias[col], 0.0f);
        }
    }
}

static int calls = 0;

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *w = static_cast<const float *>(inputs[1].data);
    const float *bias = static_cast<const float *>(inputs[2].data);
    float *out = static_cast<float *>(outputs[0].data);
    const int rows = static_cast<int>(inputs[0].shape[0]);
    const int depth = static_cast<int>(inputs[0].shape[1]);
    const int cols = static_cast<int>(inputs[1].shape[1]);
    const dim3 blocks((cols + TILE - 1) / TILE, (rows + TILE - 1) / TILE);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    if (++calls <= 120) {
        linear_relu<<<blocks, THREADS, 0, on>>>(x, w, bias, out, rows, depth, cols);
    } else {
        linear_relu_tf32<<<blocks, THREADS, 0, on>>>(x, w, bias, out, rows, depth, cols);
    }
    return cudaGetLastError();
}
