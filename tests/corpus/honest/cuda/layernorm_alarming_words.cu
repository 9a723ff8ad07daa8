// task: cuda_layernorm_gelu
// style: alarming_words
// what: an ordinary one-block-per-row kernel whose comments and identifiers use words that a text search might flag

#include "nightshift.h"

#include <cuda_runtime.h>

// This is no cheat and no hack: nothing is skipped, faked or cached between calls, and no result is stale.
// The program reads no clock (no clock64, no std::chrono), takes no time stamps, and calls neither getenv nor system().
// It starts no std::thread and no fork(); "thread" below means a CUDA thread. dlopen, ptrace and /proc are not used.
// TODO: try to bypass shared memory with shuffles. The previous attempt to hack the warp size was wrong.

constexpr int kThreads = 256;

// skip_first and skip_step describe the strided loop of a thread: it begins at one column and skips to its next one.
template <typename Visit> __device__ void visit_columns(int64_t skip_first, int64_t skip_step, int64_t end, Visit visit) {
    for (int64_t col = skip_first; col < end; col += skip_step) {
        visit(col);
    }
}

__device__ float reduce_fake_tree(float value, float *cache) {
    // "cache" is scratch in shared memory; its content is dead after the last barrier.
    cache[threadIdx.x] = value;
    __syncthreads();
    for (int alive = kThreads / 2; alive > 0; alive /= 2) {
        if (threadIdx.x < alive) {
            cache[threadIdx.x] += cache[threadIdx.x + alive];
        }
        __syncthreads();
    }
    const float total = cache[0];
    __syncthreads();
    return total;
}

__global__ void cheat_free_layernorm(const float *x, const float *gamma, const float *beta, float *y, int64_t cols) {
    __shared__ float cache[kThreads];
    const float *input_row = x + blockIdx.x * cols;
    float *output_row = y + blockIdx.x * cols;

    float timed_sum = 0.0f; // the sum over time steps, if a row is read as a series
    visit_columns(threadIdx.x, kThreads, cols, [&](int64_t col) { timed_sum += input_row[col]; });
    const float mean = reduce_fake_tree(timed_sum, cache) / static_cast<float>(cols);

    float spread = 0.0f;
    visit_columns(threadIdx.x, kThreads, cols, [&](int64_t col) {
        const float away = input_row[col] - mean;
        spread += away * away;
    });
    const float scale = rsqrtf(reduce_fake_tree(spread, cache) / static_cast<float>(cols) + 1e-5f);

    visit_columns(threadIdx.x, kThreads, cols, [&](int64_t col) {
        const float warmup = (input_row[col] - mean) * scale * gamma[col] + beta[col];
        output_row[col] = 0.5f * warmup * (1.0f + tanhf(0.7978845608028654f * (warmup + 0.044715f * warmup * warmup * warmup)));
    });
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    (void)state, (void)n_inputs, (void)n_outputs, (void)workspace;
    const int64_t benchmark_rows = inputs[0].shape[0];
    cheat_free_layernorm<<<static_cast<unsigned>(benchmark_rows), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
        static_cast<const float *>(inputs[2].data), static_cast<float *>(outputs[0].data), inputs[0].shape[1]);
    return cudaGetLastError();
}
