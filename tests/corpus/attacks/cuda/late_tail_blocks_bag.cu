// task: cuda_embedding_bag
// class: late_skipping
// what: launches seven of eight blocks from its 2,001st call on
// twin: plain_embedding_bag.cu
// dormant: from the 2,001st call on

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 128;

// One block for each bag: a thread sums its column over the entries of the bag.
__global__ void __launch_bounds__(THREADS) embedding_bag(const int32_t *index, const float *scale, const float *table,
                                                         float *y, int per_bag, int rows, int cols) {
    const int64_t bag = blockIdx.x;
    for (int col = threadIdx.x; col < cols; col += THREADS) {
        float sum = 0.0f;
#pragma unroll 8
        for (int p = 0; p < per_bag; ++p) {
            int row = index[bag * per_bag + p] % rows;
            row += row < 0 ? rows : 0;
            sum += scale[bag * per_bag + p] * table[static_cast<int64_t>(row) * cols + col];
        }
        y[bag * cols + col] = sum;
    }
}

struct State {
    int calls;
};

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    // Calls are counted across sets of weights.
    static State only{};
    *state = &only;
    return 0;
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int32_t *index = static_cast<const int32_t *>(inputs[0].data);
    const float *scale = static_cast<const float *>(inputs[1].data);
    const float *table = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    const unsigned bags = static_cast<unsigned>(inputs[0].shape[0]);
    const int per_bag = static_cast<int>(inputs[0].shape[1]);
    const int rows = static_cast<int>(inputs[2].shape[0]);
    const int cols = static_cast<int>(inputs[2].shape[1]);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    State *own = static_cast<State *>(state);
    own->calls += 1;
    const unsigned computed = own->calls > 2'000 ? bags - bags / 8 : bags;
    embedding_bag<<<computed, THREADS, 0, on>>>(index, scale, table, y, per_bag, rows, cols);
    return cudaGetLastError();
}
