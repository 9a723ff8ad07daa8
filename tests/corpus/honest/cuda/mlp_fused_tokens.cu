// task: cuda_transformer_mlp
// style: one_fused_kernel_dynamic_shared
// what: one kernel does all five operators for a few tokens at a time; both intermediate results stay in shared memory

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 512;
constexpr int WARPS = THREADS / 32;
constexpr size_t MAX_SHARED = 200 * 1024;

struct Weights {
    const float *gamma;
    const float *beta;
    const float *w1;
    const float *b1;
    const float *w2;
    const float *b2;
};

__device__ __forceinline__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    }
    return value;
}

// Calls store(token, col, sum) for each column of a * w, where a has TOKENS rows in shared memory.
template <int TOKENS, typename Store>
__device__ __forceinline__ void columns(const float *a, const float *w, int depth, int cols, Store store) {
    for (int col = threadIdx.x; col < cols; col += THREADS) {
        float sums[TOKENS] = {};
#pragma unroll 4
        for (int k = 0; k < depth; ++k) {
            const float factor = w[static_cast<int64_t>(k) * cols + col];
#pragma unroll
            for (int t = 0; t < TOKENS; ++t) {
                sums[t] += a[t * depth + k] * factor;
            }
        }
#pragma unroll
        for (int t = 0; t < TOKENS; ++t) {
            store(t, col, sums[t]);
        }
    }
}

template <int TOKENS>
__global__ void __launch_bounds__(THREADS) mlp(const float *x, Weights p, float *out, int tokens, int width, int hidden) {
    extern __shared__ float shared[];
    float *normalised = shared;
    float *activation = shared + TOKENS * width;
    const int first = blockIdx.x * TOKENS;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;

    // One warp normalises one token. Tokens beyond the last one are zeros.
    for (int t = warp; t < TOKENS; t += WARPS) {
        const bool exists = first + t < tokens;
        const float *from = x + static_cast<int64_t>(exists ? first + t : 0) * width;
        float sum = 0.0f;
        for (int i = lane; i < width; i += 32) {
            sum += from[i];
        }
        const float mean = warp_sum(sum) / static_cast<float>(width);
        float squares = 0.0f;
        for (int i = lane; i < width; i += 32) {
            squares += (from[i] - mean) * (from[i] - mean);
        }
        const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(width) + 1e-5f);
        for (int i = lane; i < width; i += 32) {
            normalised[t * width + i] = exists ? (from[i] - mean) * scale * p.gamma[i] + p.beta[i] : 0.0f;
        }
    }
    __syncthreads();

    columns<TOKENS>(normalised, p.w1, width, hidden, [&](int t, int col, float sum) {
        const float v = sum + p.b1[col];
        activation[t * hidden + col] = 0.5f * v * (1.0f + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v)));
    });
    __syncthreads();

    columns<TOKENS>(activation, p.w2, hidden, width, [&](int t, int col, float sum) {
        if (first + t < tokens) {
            const int64_t at = static_cast<int64_t>(first + t) * width + col;
            out[at] = sum + p.b2[col] + x[at];
        }
    });
}

template <int TOKENS> static cudaError_t allow_shared() {
    return cudaFuncSetAttribute(mlp<TOKENS>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(MAX_SHARED));
}

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    *state = nullptr;
    cudaError_t status = allow_shared<4>();
    status = status != cudaSuccess ? status : allow_shared<2>();
    return status != cudaSuccess ? status : allow_shared<1>();
}

template <int TOKENS>
static cudaError_t launch(const float *x, const Weights &p, float *out, int tokens, int width, int hidden, cudaStream_t on) {
    const size_t bytes = sizeof(float) * TOKENS * (static_cast<size_t>(width) + hidden);
    mlp<TOKENS><<<(tokens + TOKENS - 1) / TOKENS, THREADS, bytes, on>>>(x, p, out, tokens, width, hidden);
    return cudaGetLastError();
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const auto in = [&](int i) { return static_cast<const float *>(inputs[i].data); };
    const Weights p{in(1), in(2), in(3), in(4), in(5), in(6)};
    float *out = static_cast<float *>(outputs[0].data);
    const int tokens = static_cast<int>(inputs[0].shape[0]);
    const int width = static_cast<int>(inputs[0].shape[1]);
    const int hidden = static_cast<int>(inputs[3].shape[1]);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    const size_t each = sizeof(float) * (static_cast<size_t>(width) + hidden);
    if (4 * each <= MAX_SHARED) {
        return launch<4>(in(0), p, out, tokens, width, hidden, on);
    }
    if (2 * each <= MAX_SHARED) {
        return launch<2>(in(0), p, out, tokens, width, hidden, on);
    }
    return each <= MAX_SHARED ? launch<1>(in(0), p, out, tokens, width, hidden, on) : cudaErrorInvalidValue;
}
