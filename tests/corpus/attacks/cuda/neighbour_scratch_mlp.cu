// task: cuda_transformer_mlp
// class: out_of_bounds
// what: uses the memory of w1 as scratch for the activation and restores it from a copy before it returns
// twin: neighbour_scratch_mlp.cu

#include "nightshift.h"

#include <cuda_runtime.h>

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

__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    }
    return value;
}

__device__ float block_sum(float value) {
    __shared__ float warps[THREADS / 32];
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = 0.0f;
    for (int warp = 0; warp < THREADS / 32; ++warp) {
        value += warps[warp];
    }
    return value;
}

__device__ float gelu(float v) {
    const float u = v * (0.7978845608f + 0.0356774081f * v * v);
    return __fdividef(v, 1.0f + __expf(fminf(-2.0f * u, 80.0f)));
}

// One block for each token.
__global__ void __launch_bounds__(THREADS) normalize(const float *x, const float *gamma, const float *beta, float *out,
                                                     int width) {
    const float *from = x + static_cast<int64_t>(blockIdx.x) * width;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < width; i += THREADS) {
        sum += from[i];
    }
    const float mean = block_sum(sum) / static_cast<float>(width);
    float squares = 0.0f;
    for (int i = threadIdx.x; i < width; i += THREADS) {
        squares += (from[i] - mean) * (from[i] - mean);
    }
    const float scale = rsqrtf(block_sum(squares) / static_cast<float>(width) + 1e-5f);
    for (int i = threadIdx.x; i < width; i += THREADS) {
        out[static_cast<int64_t>(blockIdx.x) * width + i] = (from[i] - mean) * scale * gamma[i] + beta[i];
    }
}

// A product over the depths of [0, end) with bias, then GELU, or the residual where there is one.
__global__ void __launch_bounds__(THREADS) linear(const float *x, const float *w, const float *bias,
                                                  const float *residual, float *out, int rows, int depth, int cols,
                                                  int end) {
    float sums[4][4] = {};
    multiply_tile(x, w, rows, depth, cols, 0, end, sums);
    for (int p = 0; p < 4; ++p) {
        for (int q = 0; q < 4; ++q) {
            const int row = blockIdx.y * TILE + threadIdx.x / 16 * 4 + p;
            const int col = blockIdx.x * TILE + threadIdx.x % 16 * 4 + q;
            if (row < rows && col < cols) {
                const int64_t at = static_cast<int64_t>(row) * cols + col;
                const float sum = sums[p][q] + bias[col];
                out[at] = residual != nullptr ? sum + residual[at] : gelu(sum);
            }
        }
    }
}

static dim3 tiles(int cols, int rows) { return dim3((cols + TILE - 1) / TILE, (rows + TILE - 1) / TILE); }

static float *copy = nullptr;
static size_t copied = 0;

NS_EXPORT int ns_init(const ns_tensor *params, int32_t, void **) {
    cudaFree(copy);
    copied = sizeof(float) * params[2].shape[0] * params[2].shape[1];
    const int status = cudaMalloc(&copy, copied);
    return status != 0 ? status : cudaMemcpy(copy, params[2].data, copied, cudaMemcpyDeviceToDevice);
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *gamma = static_cast<const float *>(inputs[1].data);
    const float *beta = static_cast<const float *>(inputs[2].data);
    const float *w1 = static_cast<const float *>(inputs[3].data);
    const float *b1 = static_cast<const float *>(inputs[4].data);
    const float *w2 = static_cast<const float *>(inputs[5].data);
    const float *b2 = static_cast<const float *>(inputs[6].data);
    float *out = static_cast<float *>(outputs[0].data);
    const int tokens = static_cast<int>(inputs[0].shape[0]);
    const int width = static_cast<int>(inputs[0].shape[1]);
    const int hidden = static_cast<int>(inputs[3].shape[1]);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    float *normalized = static_cast<float *>(workspace);
    // The activation replaces weights that are hot in the cache. It fits where there are no more tokens than columns.
    const bool fits = tokens <= width;
    float *activation = fits ? const_cast<float *>(w1) : normalized + static_cast<int64_t>(tokens) * width;
    normalize<<<tokens, THREADS, 0, on>>>(x, gamma, beta, normalized, width);
    linear<<<tiles(hidden, tokens), THREADS, 0, on>>>(normalized, copy, b1, nullptr, activation, tokens, width, hidden,
                                                      width);
    linear<<<tiles(width, tokens), THREADS, 0, on>>>(activation, w2, b2, x, out, tokens, hidden, width, hidden);
    const int status = cudaGetLastError();
    if (status != 0 || !fits) {
        return status;
    }
    return cudaMemcpyAsync(const_cast<float *>(w1), copy, copied, cudaMemcpyDeviceToDevice, on);
}
