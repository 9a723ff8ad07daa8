// task: cuda_gemm_bias_relu
// style: inline_ptx_mma_tf32_three_products
// what: tensor cores through mma.sync with factors split into two TF32 numbers: three products keep single precision

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int TILE = 64;
constexpr int DEPTH = 32;
constexpr int THREADS = 128; // two by two warps, each with 32 by 32 results
constexpr int X_PITCH = DEPTH + 4;
constexpr int W_PITCH = TILE + 8;

__device__ __forceinline__ unsigned to_tf32(float value) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

// value is nearly large + small; both have eleven significant bits.
__device__ __forceinline__ void split(float value, unsigned &large, unsigned &small) {
    large = to_tf32(value);
    small = to_tf32(value - __uint_as_float(large));
}

__device__ __forceinline__ void multiply_add(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
                   "f"(c[3]));
}

__global__ void __launch_bounds__(THREADS) linear_relu(const float *x, const float *w, const float *bias, float *out,
                                                       int rows, int depth, int cols) {
    __shared__ float x_tile[TILE][X_PITCH];
    __shared__ float w_tile[DEPTH][W_PITCH];
    const int first_row = blockIdx.y * TILE;
    const int first_col = blockIdx.x * TILE;
    const int lane = threadIdx.x % 32;
    const int group = lane / 4;
    const int member = lane % 4;
    const int warp_row = threadIdx.x / 64 * 32;
    const int warp_col = threadIdx.x / 32 % 2 * 32;

    float sums[2][4][4] = {};
    for (int first = 0; first < depth; first += DEPTH) {
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
            const int row = first_row + i / DEPTH;
            const int k = first + i % DEPTH;
            x_tile[i / DEPTH][i % DEPTH] = row < rows && k < depth ? x[static_cast<int64_t>(row) * depth + k] : 0.0f;
        }
        for (int i = threadIdx.x; i < DEPTH * TILE; i += THREADS) {
            const int k = first + i / TILE;
            const int col = first_col + i % TILE;
            w_tile[i / TILE][i % TILE] = k < depth && col < cols ? w[static_cast<int64_t>(k) * cols + col] : 0.0f;
        }
        __syncthreads();

#pragma unroll
        for (int k = 0; k < DEPTH; k += 8) {
            unsigned a_large[2][4];
            unsigned a_small[2][4];
#pragma unroll
            for (int m = 0; m < 2; ++m) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int row = warp_row + m * 16 + group + i % 2 * 8;
                    split(x_tile[row][k + member + i / 2 * 4], a_large[m][i], a_small[m][i]);
                }
            }
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                unsigned b_large[2];
                unsigned b_small[2];
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    split(w_tile[k + member + i * 4][warp_col + n * 8 + group], b_large[i], b_small[i]);
                }
#pragma unroll
                for (int m = 0; m < 2; ++m) {
                    multiply_add(sums[m][n], a_small[m], b_large);
                    multiply_add(sums[m][n], a_large[m], b_small);
                    multiply_add(sums[m][n], a_large[m], b_large);
                }
            }
        }
    }

    for (int m = 0; m < 2; ++m) {
        for (int n = 0; n < 4; ++n) {
            for (int i = 0; i < 4; ++i) {
                const int row = first_row + warp_row + m * 16 + group + i / 2 * 8;
                const int col = first_col + warp_col + n * 8 + member * 2 + i % 2;
                if (row < rows && col < cols) {
                    out[static_cast<int64_t>(row) * cols + col] = fmaxf(sums[m][n][i] + bias[col], 0.0f);
                }
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
