// task: cuda_transformer_mlp
// style: programmatic_dependent_launch_chain
// what: three kernels, each launched early; each waits for the one before with griddepcontrol.wait before it reads or writes

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr int TILE = 32;

#define CHECK(call)                       \
    do {                                  \
        const cudaError_t error = (call); \
        if (error != cudaSuccess) {       \
            return error;                 \
        }                                 \
    } while (0)

__device__ __forceinline__ void wait_for_predecessor() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ __forceinline__ void release_successor() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__global__ void __launch_bounds__(THREADS) layernorm(const float *x, const float *gamma, const float *beta, float *out,
                                                     int tokens, int width) {
    release_successor();
    const int token = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (token >= tokens) {
        return;
    }
    const float *from = x + static_cast<int64_t>(token) * width;
    const auto sum_up = [](float value) {
        for (int offset = 16; offset > 0; offset >>= 1) {
            value += __shfl_xor_sync(0xffffffffu, value, offset);
        }
        return value;
    };
    float sum = 0.0f;
    for (int i = lane; i < width; i += 32) {
        sum += from[i];
    }
    const float mean = sum_up(sum) / static_cast<float>(width);
    float squares = 0.0f;
    for (int i = lane; i < width; i += 32) {
        squares += (from[i] - mean) * (from[i] - mean);
    }
    const float scale = rsqrtf(sum_up(squares) / static_cast<float>(width) + 1e-5f);
    for (int i = lane; i < width; i += 32) {
        out[static_cast<int64_t>(token) * width + i] = (from[i] - mean) * scale * gamma[i] + beta[i];
    }
}

// GELU of a * w + bias, or a * w + bias + x for the second product.
template <bool SECOND>
__global__ void __launch_bounds__(THREADS) product(const float *a, const float *w, const float *bias, const float *x,
                                                   float *out, int rows, int depth, int cols) {
    __shared__ float left[TILE][TILE + 1];
    __shared__ float right[2][TILE][TILE];
    const int lane = threadIdx.x % TILE;
    const int line = threadIdx.x / TILE;
    const int first_row = blockIdx.y * TILE;
    const int col = blockIdx.x * TILE + lane;
    const auto load_weights = [&](int first) {
        for (int i = line; i < TILE; i += THREADS / TILE) {
            right[first / TILE % 2][i][lane] = first + i < depth && col < cols ? w[static_cast<int64_t>(first + i) * cols + col] : 0.0f;
        }
    };
    // Weights do not depend on the kernel before, so the first tile is loaded while that kernel runs.
    load_weights(0);
    wait_for_predecessor();
    release_successor();

    float sums[4] = {};
    for (int first = 0; first < depth; first += TILE) {
        for (int i = line; i < TILE; i += THREADS / TILE) {
            const int row = first_row + i;
            left[i][lane] = row < rows && first + lane < depth ? a[static_cast<int64_t>(row) * depth + first + lane] : 0.0f;
        }
        __syncthreads();
        if (first + TILE < depth) {
            load_weights(first + TILE);
        }
        for (int k = 0; k < TILE; ++k) {
            const float factor = right[first / TILE % 2][k][lane];
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                sums[r] += left[line + 8 * r][k] * factor;
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < 4; ++r) {
        const int row = first_row + line + 8 * r;
        if (row < rows && col < cols) {
            const int64_t at = static_cast<int64_t>(row) * cols + col;
            const float v = sums[r] + bias[col];
            out[at] = SECOND ? v + x[at] : 0.5f * v * (1.0f + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v)));
        }
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const auto in = [&](int i) { return static_cast<const float *>(inputs[i].data); };
    const int tokens = static_cast<int>(inputs[0].shape[0]);
    const int width = static_cast<int>(inputs[0].shape[1]);
    const int hidden = static_cast<int>(inputs[3].shape[1]);
    float *normalised = static_cast<float *>(workspace);
    float *activation = normalised + static_cast<int64_t>(tokens) * width;
    const float *no_residual = nullptr;

    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.blockDim = dim3(THREADS);
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &attribute;

    // The first kernel is launched without the attribute: it starts when everything before this call is over.
    config.gridDim = dim3((tokens + THREADS / 32 - 1) / (THREADS / 32));
    config.numAttrs = 0;
    CHECK(cudaLaunchKernelEx(&config, layernorm, in(0), in(1), in(2), normalised, tokens, width));
    config.numAttrs = 1;
    config.gridDim = dim3((hidden + TILE - 1) / TILE, (tokens + TILE - 1) / TILE);
    CHECK(cudaLaunchKernelEx(&config, product<false>, static_cast<const float *>(normalised), in(3), in(4), no_residual,
                             activation, tokens, width, hidden));
    config.gridDim = dim3((width + TILE - 1) / TILE, (tokens + TILE - 1) / TILE);
    CHECK(cudaLaunchKernelEx(&config, product<true>, static_cast<const float *>(activation), in(5), in(6), in(0),
                             static_cast<float *>(outputs[0].data), tokens, hidden, width));
    return 0;
}
