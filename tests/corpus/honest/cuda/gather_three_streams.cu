// task: cuda_gather_rows
// style: three_streams_vector_of_events
// what: bags are dealt to the given stream and two more; indices sit in shared memory; every extra stream is joined

#include "nightshift.h"

#include <cuda_runtime.h>

#include <vector>

namespace {

constexpr int THREADS = 128;
constexpr int CHUNK = 64; // indices in shared memory at a time

// One block for each bag.
__global__ void __launch_bounds__(THREADS) gather(const int32_t *index, const float *scale, const float *table, float *y,
                                                  int per_bag, int rows, int cols) {
    __shared__ int chosen[CHUNK];
    __shared__ float factors[CHUNK];
    const int64_t bag = blockIdx.x;
    for (int first_col = 0; first_col < cols; first_col += THREADS) {
        const int col = first_col + threadIdx.x;
        float sum = 0.0f;
        for (int first = 0; first < per_bag; first += CHUNK) {
            const int count = min(CHUNK, per_bag - first);
            if (static_cast<int>(threadIdx.x) < count) {
                const int64_t at = bag * per_bag + first + threadIdx.x;
                const int rest = index[at] % rows;
                chosen[threadIdx.x] = rest < 0 ? rest + rows : rest;
                factors[threadIdx.x] = scale[at];
            }
            __syncthreads();
            if (col < cols) {
                for (int p = 0; p < count; ++p) {
                    sum += factors[p] * table[static_cast<int64_t>(chosen[p]) * cols + col];
                }
            }
            __syncthreads();
        }
        if (col < cols) {
            y[bag * cols + col] = sum;
        }
    }
}

struct Branch {
    cudaStream_t stream = nullptr;
    cudaEvent_t done = nullptr;
};

struct State {
    std::vector<Branch> branches{2};
    cudaEvent_t begun = nullptr;

    ~State() noexcept {
        for (Branch &branch : branches) {
            if (branch.done != nullptr) cudaEventDestroy(branch.done);
            if (branch.stream != nullptr) cudaStreamDestroy(branch.stream);
        }
        if (begun != nullptr) cudaEventDestroy(begun);
    }
};

} // namespace

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    State *made = new State;
    *state = made;
    cudaError_t status = cudaEventCreateWithFlags(&made->begun, cudaEventDisableTiming);
    for (Branch &branch : made->branches) {
        if (status == cudaSuccess) {
            status = cudaStreamCreateWithFlags(&branch.stream, cudaStreamNonBlocking);
        }
        if (status == cudaSuccess) {
            status = cudaEventCreateWithFlags(&branch.done, cudaEventDisableTiming);
        }
    }
    return status;
}

NS_EXPORT void ns_free(void *state) {
    delete static_cast<State *>(state);
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const State &s = *static_cast<const State *>(state);
    const int32_t *index = static_cast<const int32_t *>(inputs[0].data);
    const float *scale = static_cast<const float *>(inputs[1].data);
    const float *table = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t bags = inputs[0].shape[0];
    const int per_bag = static_cast<int>(inputs[0].shape[1]);
    const int rows = static_cast<int>(inputs[2].shape[0]);
    const int cols = static_cast<int>(inputs[2].shape[1]);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);

    const int64_t share = (bags + 2) / 3;
    const auto launch = [&](int64_t first, cudaStream_t to) {
        const int64_t count = bags - first < share ? bags - first : share;
        if (count > 0) {
            gather<<<static_cast<unsigned>(count), THREADS, 0, to>>>(index + first * per_bag, scale + first * per_bag, table,
                                                                    y + first * cols, per_bag, rows, cols);
        }
    };
    int status = cudaEventRecord(s.begun, on);
    for (size_t i = 0; i < s.branches.size() && status == 0; ++i) {
        status = cudaStreamWaitEvent(s.branches[i].stream, s.begun, 0);
        launch(share * static_cast<int64_t>(i + 1), s.branches[i].stream);
    }
    launch(0, on);
    for (size_t i = 0; i < s.branches.size() && status == 0; ++i) {
        status = cudaEventRecord(s.branches[i].done, s.branches[i].stream);
        if (status == 0) {
            status = cudaStreamWaitEvent(on, s.branches[i].done, 0);
        }
    }
    const int launched = cudaGetLastError();
    return status != 0 ? status : launched;
}
