// task: cuda_transformer_mlp
// style: namespaces_functors_templates
// what: one tiled product with functors as epilogues; gamma is folded into w1 and beta into b1 when the weights are known

#include "nightshift.h"

#include <cuda_runtime.h>

#include <memory>

namespace mlp::detail {

constexpr int TILE_ROWS = 32;
constexpr int TILE_COLS = 64;
constexpr int TILE_DEPTH = 16;
constexpr int THREADS = 128;

struct DeviceDeleter {
    void operator()(float *p) const noexcept { cudaFree(p); }
};
using DeviceArray = std::unique_ptr<float, DeviceDeleter>;

inline cudaError_t allocate(DeviceArray &array, int64_t count) noexcept {
    float *p = nullptr;
    const cudaError_t status = cudaMalloc(&p, sizeof(float) * count);
    array.reset(p);
    return status;
}

// One block per hidden column: scaled[i, col] = gamma[i] * w1[i, col], shifted[col] = b1[col] + sum of beta[i] * w1[i, col].
__global__ void fold(const float *gamma, const float *beta, const float *w1, const float *b1, float *scaled, float *shifted,
                     int width, int hidden) {
    const int col = blockIdx.x;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < width; i += 32) {
        const int64_t at = static_cast<int64_t>(i) * hidden + col;
        scaled[at] = gamma[i] * w1[at];
        sum += beta[i] * w1[at];
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
    }
    if (threadIdx.x == 0) {
        shifted[col] = b1[col] + sum;
    }
}

__global__ void standardise(const float *x, float *out, int width) {
    const float *from = x + static_cast<int64_t>(blockIdx.x) * width;
    float *to = out + static_cast<int64_t>(blockIdx.x) * width;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < width; i += 32) {
        sum += from[i];
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    }
    const float mean = sum / static_cast<float>(width);
    float squares = 0.0f;
    for (int i = threadIdx.x; i < width; i += 32) {
        squares += (from[i] - mean) * (from[i] - mean);
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        squares += __shfl_xor_sync(0xffffffffu, squares, offset);
    }
    const float scale = 1.0f / sqrtf(squares / static_cast<float>(width) + 1e-5f);
    for (int i = threadIdx.x; i < width; i += 32) {
        to[i] = (from[i] - mean) * scale;
    }
}

struct BiasGelu {
    const float *bias;
    __device__ float operator()(float sum, int, int col, int) const {
        const float v = sum + bias[col];
        const float u = 0.7978845608028654f * (v + 0.044715f * v * v * v);
        return v / (1.0f + expf(-2.0f * u));
    }
};

struct BiasResidual {
    const float *bias;
    const float *x;
    __device__ float operator()(float sum, int row, int col, int cols) const {
        return sum + bias[col] + x[static_cast<int64_t>(row) * cols + col];
    }
};

template <typename Epilogue>
__global__ void __launch_bounds__(THREADS) product(const float *a, const float *b, float *out, int rows, int depth, int cols,
                                                   Epilogue epilogue) {
    __shared__ float a_tile[TILE_DEPTH][TILE_ROWS + 1];
    __shared__ float b_tile[TILE_DEPTH][TILE_COLS];
    const int first_row = blockIdx.y * TILE_ROWS;
    const int first_col = blockIdx.x * TILE_COLS;
    const int own_row = threadIdx.x / 16 * 4;
    const int own_col = threadIdx.x % 16;
    float sums[4][4] = {};
    for (int first = 0; first < depth; first += TILE_DEPTH) {
        for (int i = threadIdx.x; i < TILE_ROWS * TILE_DEPTH; i += THREADS) {
            const int row = first_row + i / TILE_DEPTH;
            const int k = first + i % TILE_DEPTH;
            a_tile[i % TILE_DEPTH][i / TILE_DEPTH] = row < rows && k < depth ? a[static_cast<int64_t>(row) * depth + k] : 0.0f;
        }
        for (int i = threadIdx.x; i < TILE_DEPTH * TILE_COLS; i += THREADS) {
            const int k = first + i / TILE_COLS;
            const int col = first_col + i % TILE_COLS;
            b_tile[i / TILE_COLS][i % TILE_COLS] = k < depth && col < cols ? b[static_cast<int64_t>(k) * cols + col] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE_DEPTH; ++k) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    sums[i][j] += a_tile[k][own_row + i] * b_tile[k][own_col + 16 * j];
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
            const int row = first_row + own_row + i;
            const int col = first_col + own_col + 16 * j;
            if (row < rows && col < cols) {
                out[static_cast<int64_t>(row) * cols + col] = epilogue(sums[i][j], row, col, cols);
            }
        }
    }
}

struct State {
    DeviceArray w1;
    DeviceArray b1;
};

template <typename Epilogue>
void launch(const float *a, const float *b, float *out, int rows, int depth, int cols, Epilogue epilogue, cudaStream_t on) {
    const dim3 blocks((cols + TILE_COLS - 1) / TILE_COLS, (rows + TILE_ROWS - 1) / TILE_ROWS);
    product<Epilogue><<<blocks, THREADS, 0, on>>>(a, b, out, rows, depth, cols, epilogue);
}

} // namespace mlp::detail

using namespace mlp::detail;

NS_EXPORT int ns_init(const ns_tensor *params, int32_t, void **state) {
    State *made = new State;
    *state = made;
    const int width = static_cast<int>(params[2].shape[0]);
    const int hidden = static_cast<int>(params[2].shape[1]);
    cudaError_t status = allocate(made->w1, static_cast<int64_t>(width) * hidden);
    if (status == cudaSuccess) {
        status = allocate(made->b1, hidden);
    }
    if (status != cudaSuccess) {
        return status;
    }
    const auto at = [&](int i) { return static_cast<const float *>(params[i].data); };
    fold<<<hidden, 32>>>(at(0), at(1), at(2), at(3), made->w1.get(), made->b1.get(), width, hidden);
    status = cudaGetLastError();
    return status == cudaSuccess ? cudaDeviceSynchronize() : status;
}

NS_EXPORT void ns_free(void *state) {
    delete static_cast<State *>(state);
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const State &s = *static_cast<const State *>(state);
    const float *x = static_cast<const float *>(inputs[0].data);
    const int tokens = static_cast<int>(inputs[0].shape[0]);
    const int width = static_cast<int>(inputs[0].shape[1]);
    const int hidden = static_cast<int>(inputs[3].shape[1]);
    float *standard = static_cast<float *>(workspace);
    float *activation = standard + static_cast<int64_t>(tokens) * width;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);

    standardise<<<tokens, 32, 0, on>>>(x, standard, width);
    launch(standard, s.w1.get(), activation, tokens, width, hidden, BiasGelu{s.b1.get()}, on);
    launch(activation, static_cast<const float *>(inputs[5].data), static_cast<float *>(outputs[0].data), tokens, hidden,
           width, BiasResidual{static_cast<const float *>(inputs[6].data), x}, on);
    return cudaGetLastError();
}
