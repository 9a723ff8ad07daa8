// task: cuda_transformer_mlp
// style: graph_capture_with_forked_streams
// what: a captured graph starts the residual on a second branch; a new graph for each new set of pointers or extents

#include "nightshift.h"

#include <cuda_runtime.h>

#include <array>

constexpr int THREADS = 256;
constexpr int TILE = 32;

__global__ void __launch_bounds__(THREADS) layernorm(const float *x, const float *gamma, const float *beta, float *out,
                                                     int64_t width) {
    __shared__ float shared[THREADS];
    const float *from = x + blockIdx.x * width;
    const auto total = [&](float value) {
        shared[threadIdx.x] = value;
        __syncthreads();
        for (int half = THREADS / 2; half > 0; half /= 2) {
            if (threadIdx.x < half) {
                shared[threadIdx.x] += shared[threadIdx.x + half];
            }
            __syncthreads();
        }
        const float sum = shared[0];
        __syncthreads();
        return sum;
    };
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        sum += from[i];
    }
    const float mean = total(sum) / static_cast<float>(width);
    float squares = 0.0f;
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        squares += (from[i] - mean) * (from[i] - mean);
    }
    const float scale = rsqrtf(total(squares) / static_cast<float>(width) + 1e-5f);
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        out[blockIdx.x * width + i] = (from[i] - mean) * scale * gamma[i] + beta[i];
    }
}

// The part of the result that needs no product: x + b2.
__global__ void residual(const float *x, const float *b2, float *out, int64_t count, int64_t width) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count) {
        out[i] = x[i] + b2[i % width];
    }
}

// GELU: out = gelu(x * w + bias). Otherwise out += x * w.
template <bool GELU>
__global__ void __launch_bounds__(TILE * 8) product(const float *x, const float *w, const float *bias, float *out, int64_t rows,
                                                    int64_t depth, int64_t cols) {
    __shared__ float left[TILE][TILE + 1];
    __shared__ float right[TILE][TILE + 1];
    const int64_t col = static_cast<int64_t>(blockIdx.x) * TILE + threadIdx.x;
    const int64_t first_row = static_cast<int64_t>(blockIdx.y) * TILE;
    float sums[4] = {};
    for (int64_t first = 0; first < depth; first += TILE) {
        for (int i = threadIdx.y; i < TILE; i += 8) {
            const bool in_x = first_row + i < rows && first + threadIdx.x < depth;
            const bool in_w = first + i < depth && col < cols;
            left[i][threadIdx.x] = in_x ? x[(first_row + i) * depth + first + threadIdx.x] : 0.0f;
            right[i][threadIdx.x] = in_w ? w[(first + i) * cols + col] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < TILE; ++k) {
            for (int r = 0; r < 4; ++r) {
                sums[r] += left[threadIdx.y + 8 * r][k] * right[k][threadIdx.x];
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < 4; ++r) {
        const int64_t row = first_row + threadIdx.y + 8 * r;
        if (row < rows && col < cols) {
            if (GELU) {
                const float v = sums[r] + bias[col];
                out[row * cols + col] = 0.5f * v * (1.0f + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v)));
            } else {
                out[row * cols + col] += sums[r];
            }
        }
    }
}

using Key = std::array<int64_t, 12>;

struct State {
    cudaStream_t main = nullptr; // both streams only serve to capture
    cudaStream_t branch = nullptr;
    cudaEvent_t fork = nullptr;
    cudaEvent_t join = nullptr;
    cudaGraphExec_t graph = nullptr;
    Key key{};
};

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    State *made = new State;
    *state = made;
    int status = cudaStreamCreateWithFlags(&made->main, cudaStreamNonBlocking);
    status = status ? status : cudaStreamCreateWithFlags(&made->branch, cudaStreamNonBlocking);
    status = status ? status : cudaEventCreateWithFlags(&made->fork, cudaEventDisableTiming);
    status = status ? status : cudaEventCreateWithFlags(&made->join, cudaEventDisableTiming);
    return status;
}

NS_EXPORT void ns_free(void *state) {
    State *made = static_cast<State *>(state);
    if (made == nullptr) return;
    if (made->graph) cudaGraphExecDestroy(made->graph);
    if (made->fork) cudaEventDestroy(made->fork);
    if (made->join) cudaEventDestroy(made->join);
    if (made->branch) cudaStreamDestroy(made->branch);
    if (made->main) cudaStreamDestroy(made->main);
    delete made;
}

static unsigned blocks_of(int64_t count, int64_t each) {
    return static_cast<unsigned>((count + each - 1) / each);
}

static int capture(const State &s, const ns_tensor *inputs, float *out, float *scratch, cudaGraph_t *graph) {
    const auto in = [&](int i) { return static_cast<const float *>(inputs[i].data); };
    const int64_t tokens = inputs[0].shape[0];
    const int64_t width = inputs[0].shape[1];
    const int64_t hidden = inputs[3].shape[1];
    float *activation = scratch + tokens * width;
    const dim3 threads(TILE, 8);

    int status = cudaStreamBeginCapture(s.main, cudaStreamCaptureModeRelaxed);
    if (status != 0) return status;
    cudaEventRecord(s.fork, s.main);
    cudaStreamWaitEvent(s.branch, s.fork, 0);
    residual<<<blocks_of(tokens * width, THREADS), THREADS, 0, s.branch>>>(in(0), in(6), out, tokens * width, width);
    cudaEventRecord(s.join, s.branch);
    layernorm<<<static_cast<unsigned>(tokens), THREADS, 0, s.main>>>(in(0), in(1), in(2), scratch, width);
    product<true><<<dim3(blocks_of(hidden, TILE), blocks_of(tokens, TILE)), threads, 0, s.main>>>(
        scratch, in(3), in(4), activation, tokens, width, hidden);
    cudaStreamWaitEvent(s.main, s.join, 0);
    product<false><<<dim3(blocks_of(width, TILE), blocks_of(tokens, TILE)), threads, 0, s.main>>>(
        activation, in(5), nullptr, out, tokens, hidden, width);
    status = cudaGetLastError();
    const int ended = cudaStreamEndCapture(s.main, graph);
    return status != 0 ? status : ended;
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    State &s = *static_cast<State *>(state);
    Key key{};
    for (int i = 0; i < n_inputs; ++i) {
        key[i] = reinterpret_cast<int64_t>(inputs[i].data);
    }
    key[7] = reinterpret_cast<int64_t>(outputs[0].data);
    key[8] = reinterpret_cast<int64_t>(workspace);
    key[9] = inputs[0].shape[0];
    key[10] = inputs[0].shape[1];
    key[11] = inputs[3].shape[1];
    if (s.graph == nullptr || key != s.key) {
        cudaGraph_t graph = nullptr;
        int status = capture(s, inputs, static_cast<float *>(outputs[0].data), static_cast<float *>(workspace), &graph);
        if (status != 0) return status;
        cudaGraphExecUpdateResultInfo info{};
        if (s.graph != nullptr && cudaGraphExecUpdate(s.graph, graph, &info) != cudaSuccess) {
            (void)cudaGetLastError();
            cudaGraphExecDestroy(s.graph);
            s.graph = nullptr;
        }
        if (s.graph == nullptr) {
            status = cudaGraphInstantiate(&s.graph, graph, 0);
        }
        cudaGraphDestroy(graph);
        if (status != 0) return status;
        s.key = key;
    }
    return cudaGraphLaunch(s.graph, static_cast<cudaStream_t>(stream));
}
