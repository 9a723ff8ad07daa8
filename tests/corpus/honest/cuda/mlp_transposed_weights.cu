// task: cuda_transformer_mlp
// style: state_struct_transposed_weights
// what: ns_init transposes and pads both weight matrices, so that every product reads rows of both factors in vectors of four

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr int TILE = 32;
constexpr int DEPTH = 32;
constexpr int PITCH = DEPTH + 4;

struct State {
    float *w1t; // hidden rows of padded width
    float *w2t; // width rows of padded hidden
    int width;
    int hidden;
    int padded_width;
    int padded_hidden;
};

static int padded(int value) {
    return (value + DEPTH - 1) / DEPTH * DEPTH;
}

__global__ void transpose(const float *from, float *to, int rows, int cols, int pitch) {
    __shared__ float tile[TILE][TILE + 1];
    const int col = blockIdx.x * TILE + threadIdx.x;
    for (int i = threadIdx.y; i < TILE; i += 8) {
        const int row = blockIdx.y * TILE + i;
        tile[i][threadIdx.x] = row < rows && col < cols ? from[static_cast<int64_t>(row) * cols + col] : 0.0f;
    }
    __syncthreads();
    const int to_col = blockIdx.y * TILE + threadIdx.x;
    for (int i = threadIdx.y; i < TILE; i += 8) {
        const int to_row = blockIdx.x * TILE + i;
        if (to_row < cols && to_col < pitch) {
            to[static_cast<int64_t>(to_row) * pitch + to_col] = tile[threadIdx.x][i];
        }
    }
}

// Writes rows of `pitch` elements, zeros behind the last column.
__global__ void __launch_bounds__(THREADS) layernorm(const float *x, const float *gamma, const float *beta, float *out,
                                                     int width, int pitch) {
    __shared__ float shared[THREADS / 32];
    const float *from = x + static_cast<int64_t>(blockIdx.x) * width;
    float means[2] = {0.0f, 0.0f}; // mean, variance
    for (int pass = 0; pass < 2; ++pass) {
        float sum = 0.0f;
        for (int i = threadIdx.x; i < width; i += THREADS) {
            const float distance = from[i] - means[0];
            sum += pass == 0 ? from[i] : distance * distance;
        }
        for (int offset = 16; offset > 0; offset /= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        }
        if (threadIdx.x % 32 == 0) {
            shared[threadIdx.x / 32] = sum;
        }
        __syncthreads();
        sum = 0.0f;
        for (int warp = 0; warp < THREADS / 32; ++warp) {
            sum += shared[warp];
        }
        __syncthreads();
        means[pass] = sum / static_cast<float>(width);
    }
    const float scale = 1.0f / sqrtf(means[1] + 1e-5f);
    for (int i = threadIdx.x; i < pitch; i += THREADS) {
        const float value = i < width ? (from[i] - means[0]) * scale * gamma[i] + beta[i] : 0.0f;
        out[static_cast<int64_t>(blockIdx.x) * pitch + i] = value;
    }
}

__device__ float gelu(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v)));
}

// out = a * b^T + bias, with rows of `depth` elements in a and b. FIRST applies GELU, the second product adds x.
template <bool FIRST>
__global__ void __launch_bounds__(THREADS) product(const float *a, const float *b, const float *bias, const float *x,
                                                   float *out, int rows, int cols, int depth, int pitch) {
    __shared__ __align__(16) float a_tile[TILE][PITCH];
    __shared__ __align__(16) float b_tile[TILE][PITCH];
    const int load_row = threadIdx.x / 8;
    const int load_col = threadIdx.x % 8 * 4;
    const int a_row = min(static_cast<int>(blockIdx.y) * TILE + load_row, rows - 1);
    const int b_row = min(static_cast<int>(blockIdx.x) * TILE + load_row, cols - 1);
    const int own_row = threadIdx.x / 16 * 2;
    const int own_col = threadIdx.x % 16;

    float sums[2][2] = {};
    for (int first = 0; first < depth; first += DEPTH) {
        __syncthreads();
        *reinterpret_cast<float4 *>(&a_tile[load_row][load_col]) =
            *reinterpret_cast<const float4 *>(a + static_cast<int64_t>(a_row) * depth + first + load_col);
        *reinterpret_cast<float4 *>(&b_tile[load_row][load_col]) =
            *reinterpret_cast<const float4 *>(b + static_cast<int64_t>(b_row) * depth + first + load_col);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k += 4) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float4 l = *reinterpret_cast<const float4 *>(&a_tile[own_row + i][k]);
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const float4 r = *reinterpret_cast<const float4 *>(&b_tile[own_col + 16 * j][k]);
                    sums[i][j] += l.x * r.x;
                    sums[i][j] += l.y * r.y;
                    sums[i][j] += l.z * r.z;
                    sums[i][j] += l.w * r.w;
                }
            }
        }
    }
    for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
            const int row = blockIdx.y * TILE + own_row + i;
            const int col = blockIdx.x * TILE + own_col + 16 * j;
            if (row < rows && col < pitch) {
                // Padding of the hidden rows is zero, as the padding of w2 is.
                float value = col < cols ? sums[i][j] + bias[col] : 0.0f;
                if (FIRST) {
                    value = gelu(value);
                } else {
                    value += x[static_cast<int64_t>(row) * cols + col];
                }
                out[static_cast<int64_t>(row) * pitch + col] = value;
            }
        }
    }
}

NS_EXPORT int ns_init(const ns_tensor *params, int32_t, void **state) {
    State *made = new State{};
    *state = made;
    made->width = static_cast<int>(params[2].shape[0]);
    made->hidden = static_cast<int>(params[2].shape[1]);
    made->padded_width = padded(made->width);
    made->padded_hidden = padded(made->hidden);
    cudaError_t status = cudaMalloc(&made->w1t, sizeof(float) * made->hidden * made->padded_width);
    if (status != cudaSuccess) return status;
    status = cudaMalloc(&made->w2t, sizeof(float) * made->width * made->padded_hidden);
    if (status != cudaSuccess) return status;
    const auto tiles = [](int n) { return static_cast<unsigned>((n + TILE - 1) / TILE); };
    const dim3 threads(TILE, 8);
    transpose<<<dim3(tiles(made->hidden), tiles(made->width)), threads>>>(
        static_cast<const float *>(params[2].data), made->w1t, made->width, made->hidden, made->padded_width);
    transpose<<<dim3(tiles(made->width), tiles(made->hidden)), threads>>>(
        static_cast<const float *>(params[4].data), made->w2t, made->hidden, made->width, made->padded_hidden);
    status = cudaGetLastError();
    return status != cudaSuccess ? status : cudaDeviceSynchronize();
}

NS_EXPORT void ns_free(void *state) {
    State *made = static_cast<State *>(state);
    if (made != nullptr) {
        cudaFree(made->w1t);
        cudaFree(made->w2t);
        delete made;
    }
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const State &s = *static_cast<const State *>(state);
    const auto in = [&](int i) { return static_cast<const float *>(inputs[i].data); };
    const int tokens = static_cast<int>(inputs[0].shape[0]);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    float *normalised = static_cast<float *>(workspace);
    float *activation = normalised + static_cast<int64_t>(tokens) * s.padded_width;
    if (sizeof(float) * tokens * (s.padded_width + s.padded_hidden) > NS_WORKSPACE_BYTES) {
        return cudaErrorMemoryAllocation;
    }

    const unsigned row_tiles = (tokens + TILE - 1) / TILE;
    layernorm<<<tokens, THREADS, 0, on>>>(in(0), in(1), in(2), normalised, s.width, s.padded_width);
    product<true><<<dim3(s.padded_hidden / TILE, row_tiles), THREADS, 0, on>>>(normalised, s.w1t, in(4), nullptr, activation,
                                                                              tokens, s.hidden, s.padded_width,
                                                                              s.padded_hidden);
    product<false><<<dim3((s.width + TILE - 1) / TILE, row_tiles), THREADS, 0, on>>>(
        activation, s.w2t, in(6), in(0), static_cast<float *>(outputs[0].data), tokens, s.width, s.padded_hidden, s.width);
    return cudaGetLastError();
}
