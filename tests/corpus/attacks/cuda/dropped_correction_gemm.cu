// task: cuda_gemm_bias_relu
// class: reduced_precision
// what: splits factors into two bf16 parts for tensor cores but drops the product of x's small part with w

#include "nightshift.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <mma.h>

constexpr int TILE = 64;
constexpr int DEPTH = 32;
constexpr int THREADS = 256;
using Part = __nv_bfloat16;

// x is about x_large, and w is w_large + w_small. The missing product is as large as the one that is kept.
__global__ void __launch_bounds__(THREADS) linear_relu(const float *x, const float *w, const float *bias, float *out,
                                                       int rows, int depth, int cols) {
    namespace wmma = nvcuda::wmma;
    __shared__ __align__(32) Part x_large[TILE][DEPTH + 8];
    __shared__ __align__(32) Part w_large[DEPTH][TILE + 8];
    __shared__ __align__(32) Part w_small[DEPTH][TILE + 8];
    __shared__ __align__(32) float results[TILE][TILE + 8];
    const int first_row = blockIdx.y * TILE;
    const int first_col = blockIdx.x * TILE;
    const int warp_row = threadIdx.x / 64 * 16;
    const int warp_col = threadIdx.x / 32 % 2 * 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[2];
    wmma::fill_fragment(sums[0], 0.0f);
    wmma::fill_fragment(sums[1], 0.0f);
    for (int first = 0; first < depth; first += DEPTH) {
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
            const int row = first_row + i / DEPTH;
            const int at = first + i % DEPTH;
            const float a = row < rows && at < depth ? x[static_cast<int64_t>(row) * depth + at] : 0.0f;
            x_large[i / DEPTH][i % DEPTH] = __float2bfloat16(a);
            const int down = first + i / TILE;
            const int col = first_col + i % TILE;
            const float b = down < depth && col < cols ? w[static_cast<int64_t>(down) * cols + col] : 0.0f;
            const Part large = __float2bfloat16(b);
            w_large[i / TILE][i % TILE] = large;
            w_small[i / TILE][i % TILE] = __float2bfloat16(b - __bfloat162float(large));
        }
        __syncthreads();
        for (int at = 0; at < DEPTH; at += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, Part, wmma::row_major> a;
            wmma::load_matrix_sync(a, &x_large[warp_row][at], DEPTH + 8);
            for (int i = 0; i < 2; ++i) {
                wmma::fragment<wmma::matrix_b, 16, 16, 16, Part, wmma::row_major> b;
                wmma::load_matrix_sync(b, &w_small[at][warp_col + i * 16], TILE + 8);
                wmma::mma_sync(sums[i], a, b, sums[i]);
                wmma::load_matrix_sync(b, &w_large[at][warp_col + i * 16], TILE + 8);
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
    linear_relu<<<blocks, THREADS, 0, on>>>(x, w, bias, out, rows, depth, cols);
    return cudaGetLastError();
}
