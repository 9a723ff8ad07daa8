// task: cuda_sum_reduction
// style: constexpr_recursion_pairwise
// what: a recursive template adds 32 elements of each thread pairwise; blocks write partials, levels repeat until one is left

#include "nightshift.h"

#include <cuda_runtime.h>

// Threads of a block and elements of a thread: a block forms Σᵢ xᵢ over 128 × 32 elements (error ≤ ½ ulp · log₂ n; 合計).
constexpr int THREADS = 128;
constexpr int EACH = 32;
constexpr int64_t TILE = THREADS * EACH;

template <int COUNT> struct Pairwise {
    static_assert(COUNT % 2 == 0, "each half has to have the same number of terms");

    template <typename Read> __device__ __forceinline__ static float sum(int first, const Read &read) {
        return Pairwise<COUNT / 2>::sum(first, read) + Pairwise<COUNT / 2>::sum(first + COUNT / 2, read);
    }
};

template <> struct Pairwise<1> {
    template <typename Read> __device__ __forceinline__ static float sum(int first, const Read &read) {
        return read(first);
    }
};

__global__ void __launch_bounds__(THREADS) level(const float *values, int64_t count, float *sums) {
    __shared__ float shared[THREADS];
    const int64_t base = blockIdx.x * TILE + threadIdx.x;
    const auto read = [=](int i) {
        const int64_t at = base + static_cast<int64_t>(i) * THREADS;
        return at < count ? values[at] : 0.0f;
    };
    shared[threadIdx.x] = Pairwise<EACH>::sum(0, read);
    __syncthreads();
    const auto from_shared = [&](int i) { return shared[i]; };
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = Pairwise<THREADS>::sum(0, from_shared);
    }
}

// Kept for experiments with shorter vectors; no code path needs it.
[[maybe_unused]] static __device__ float unused_sequential_sum(const float *values, int count) {
    float sum = 0.0f;
    for (int i = 0; i < count; ++i) {
        sum += values[i];
    }
    return sum;
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    const float *values = static_cast<const float *>(inputs[0].data);
    float *scratch = static_cast<float *>(workspace);
    int64_t count = inputs[0].shape[0];
    for (;;) {
        const int64_t blocks = (count + TILE - 1) / TILE;
        float *to = blocks == 1 ? static_cast<float *>(outputs[0].data) : scratch;
        level<<<static_cast<unsigned>(blocks), THREADS, 0, on>>>(values, count, to);
        if (blocks == 1) {
            return cudaGetLastError();
        }
        // The next level reads what this one wrote and writes behind it.
        values = scratch;
        scratch += blocks;
        count = blocks;
    }
}
