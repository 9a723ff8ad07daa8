// task: cuda_gemm_bias_relu
// style: inline_ptx_mma_bf16_six_products
// what: factors split into three bfloat16 numbers, six of nine products on tensor cores: as exact as single precision

#include "nightshift.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int ROWS = 32;
constexpr int COLS = 64;
constexpr int DEPTH = 16;
constexpr int THREADS = 128; // warp i has rows 16 * (i / 2) and columns 32 * (i % 2)
constexpr int PITCH = DEPTH + 8;

struct Parts {
    __nv_bfloat16 part[3];
};

__device__ __forceinline__ Parts split(float value) {
    Parts parts;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        parts.part[i] = __float2bfloat16_rn(value);
        value -= __bfloat162float(parts.part[i]); // exact: the parts do not overlap
    }
    return parts;
}

__device__ __forceinline__ unsigned pair_at(const __nv_bfloat16 *address) {
    return *reinterpret_cast<const unsigned *>(address);
}

__device__ __forceinline__ void multiply_add(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
                   "f"(c[3]));
}

__global__ void __launch_bounds__(THREADS) linear_relu(const float *x, const float *w, const float *bias, float *out,
                                                       int rows, int depth, int cols) {
    // The tile of w is stored by columns, so that two neighbours in depth share a register.
    __shared__ __align__(16) __nv_bfloat16 x_tile[3][ROWS][PITCH];
    __shared__ __align__(16) __nv_bfloat16 w_tile[3][COLS][PITCH];
    const int first_row = blockIdx.y * ROWS;
    const int first_col = blockIdx.x * COLS;
    const int lane = threadIdx.x % 32;
    const int group = lane / 4;
    const int pair = lane % 4 * 2;
    const int warp_row = threadIdx.x / 64 * 16;
    const int warp_col = threadIdx.x / 32 % 2 * 32;

    float sums[4][4] = {};
    for (int first = 0; first < depth; first += DEPTH) {
        __syncthreads();
        for (int i = threadIdx.x; i < ROWS * DEPTH; i += THREADS) {
            const int row = first_row + i / DEPTH;
            const int k = first + i % DEPTH;
            const Parts parts = split(row < rows && k < depth ? x[static_cast<int64_t>(row) * depth + k] : 0.0f);
            for (int p = 0; p < 3; ++p) {
                x_tile[p][i / DEPTH][i % DEPTH] = parts.part[p];
            }
        }
        for (int i = threadIdx.x; i < DEPTH * COLS; i += THREADS) {
            const int k = first + i / COLS;
            const int col = first_col + i % COLS;
            const Parts parts = split(k < depth && col < cols ? w[static_cast<int64_t>(k) * cols + col] : 0.0f);
            for (int p = 0; p < 3; ++p) {
                w_tile[p][i % COLS][i / COLS] = parts.part[p];
            }
        }
        __syncthreads();

        unsigned a[3][4];
#pragma unroll
        for (int p = 0; p < 3; ++p) {
            a[p][0] = pair_at(&x_tile[p][warp_row + group][pair]);
            a[p][1] = pair_at(&x_tile[p][warp_row + group + 8][pair]);
            a[p][2] = pair_at(&x_tile[p][warp_row + group][pair + 8]);
            a[p][3] = pair_at(&x_tile[p][warp_row + group + 8][pair + 8]);
        }
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            unsigned b[3][2];
#pragma unroll
            for (int p = 0; p < 3; ++p) {
                b[p][0] = pair_at(&w_tile[p][warp_col + n * 8 + group][pair]);
                b[p][1] = pair_at(&w_tile[p][warp_col + n * 8 + group][pair + 8]);
            }
            // The smallest products first. Those left out are below the rounding of single precision.
            multiply_add(sums[n], a[2], b[0]);
            multiply_add(sums[n], a[1], b[1]);
            multiply_add(sums[n], a[0], b[2]);
            multiply_add(sums[n], a[1], b[0]);
            multiply_add(sums[n], a[0], b[1]);
            multiply_add(sums[n], a[0], b[0]);
        }
    }
    for (int n = 0; n < 4; ++n) {
        for (int i = 0; i < 4; ++i) {
            const int row = first_row + warp_row + group + i / 2 * 8;
            const int col = first_col + warp_col + n * 8 + pair + i % 2;
            if (row < rows && col < cols) {
                out[static_cast<int64_t>(row) * cols + col] = fmaxf(sums[n][i] + bias[col], 0.0f);
            }
        }
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int rows = static_cast<int>(inputs[0].shape[0]);
    const int depth = static_cast<int>(inputs[0].shape[1]);
    const int cols = static_cast<int>(inputs[1].shape[1]);
    const dim3 blocks((cols + COLS - 1) / COLS, (rows + ROWS - 1) / ROWS);
    linear_relu<<<blocks, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
        static_cast<const float *>(inputs[2].data), static_cast<float *>(outputs[0].data), rows, depth, cols);
    return cudaGetLastError();
}
