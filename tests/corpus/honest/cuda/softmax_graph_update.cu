// task: cuda_row_softmax
// style: cuda_graph_exec_update
// what: three kernels in a captured graph, captured again and updated whenever a pointer or an extent differs

#include "nightshift.h"

#include <cuda_runtime.h>

#include <new>

constexpr int THREADS = 256;

#define RETURN_ON_ERROR(call)            \
    do {                                 \
        const cudaError_t code = (call); \
        if (code != cudaSuccess) {       \
            return code;                 \
        }                                \
    } while (0)

template <bool LARGEST> __device__ float reduce_block(float value) {
    __shared__ float shared[THREADS];
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            const float other = shared[threadIdx.x + half];
            shared[threadIdx.x] = LARGEST ? fmaxf(shared[threadIdx.x], other) : shared[threadIdx.x] + other;
        }
        __syncthreads();
    }
    return shared[0];
}

__global__ void row_maxima(const float *x, float *maxima, int64_t cols) {
    const float *from = x + blockIdx.x * cols;
    float largest = from[0];
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        largest = fmaxf(largest, from[col]);
    }
    largest = reduce_block<true>(largest);
    if (threadIdx.x == 0) {
        maxima[blockIdx.x] = largest;
    }
}

__global__ void row_sums(const float *x, const float *maxima, float *sums, int64_t cols) {
    const float *from = x + blockIdx.x * cols;
    const float largest = maxima[blockIdx.x];
    float sum = 0.0f;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        sum += expf(from[col] - largest);
    }
    sum = reduce_block<false>(sum);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
    }
}

__global__ void normalise(const float *x, const float *maxima, const float *sums, float *y, int64_t count, int64_t cols) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count) {
        const int64_t row = i / cols;
        y[i] = expf(x[i] - maxima[row]) / sums[row];
    }
}

// What a graph was captured for. The graph reads the inputs when it runs, so only addresses and extents belong here.
struct Key {
    const float *x;
    float *y;
    float *scratch;
    int64_t rows;
    int64_t cols;

    bool operator==(const Key &) const = default;
};

struct State {
    cudaStream_t capture = nullptr;
    cudaGraphExec_t graph = nullptr;
    Key key{};
};

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    State *made = new (std::nothrow) State;
    *state = made;
    if (made == nullptr) {
        return cudaErrorMemoryAllocation;
    }
    return cudaStreamCreateWithFlags(&made->capture, cudaStreamNonBlocking);
}

NS_EXPORT void ns_free(void *state) {
    State *made = static_cast<State *>(state);
    if (made == nullptr) {
        return;
    }
    if (made->graph != nullptr) {
        cudaGraphExecDestroy(made->graph);
    }
    if (made->capture != nullptr) {
        cudaStreamDestroy(made->capture);
    }
    delete made;
}

static cudaError_t record(cudaStream_t on, const Key &key, cudaGraph_t *graph) {
    RETURN_ON_ERROR(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal));
    float *maxima = key.scratch;
    float *sums = key.scratch + key.rows;
    const unsigned rows = static_cast<unsigned>(key.rows);
    const int64_t count = key.rows * key.cols;
    row_maxima<<<rows, THREADS, 0, on>>>(key.x, maxima, key.cols);
    row_sums<<<rows, THREADS, 0, on>>>(key.x, maxima, sums, key.cols);
    normalise<<<static_cast<unsigned>((count + THREADS - 1) / THREADS), THREADS, 0, on>>>(key.x, maxima, sums, key.y, count,
                                                                                         key.cols);
    const cudaError_t launched = cudaGetLastError();
    const cudaError_t ended = cudaStreamEndCapture(on, graph);
    return launched != cudaSuccess ? launched : ended;
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    State *made = static_cast<State *>(state);
    const Key key{static_cast<const float *>(inputs[0].data), static_cast<float *>(outputs[0].data),
                  static_cast<float *>(workspace), inputs[0].shape[0], inputs[0].shape[1]};

    if (made->graph == nullptr || !(key == made->key)) {
        cudaGraph_t graph = nullptr;
        RETURN_ON_ERROR(record(made->capture, key, &graph));
        bool updated = false;
        if (made->graph != nullptr) {
            cudaGraphExecUpdateResultInfo info{};
            updated = cudaGraphExecUpdate(made->graph, graph, &info) == cudaSuccess;
            if (!updated) {
                cudaGetLastError(); // a refused update leaves an error that is dealt with below
                cudaGraphExecDestroy(made->graph);
                made->graph = nullptr;
            }
        }
        cudaError_t status = cudaSuccess;
        if (!updated) {
            status = cudaGraphInstantiate(&made->graph, graph, 0);
        }
        cudaGraphDestroy(graph);
        if (status != cudaSuccess) {
            made->graph = nullptr;
            return status;
        }
        made->key = key;
    }
    return cudaGraphLaunch(made->graph, static_cast<cudaStream_t>(stream));
}
