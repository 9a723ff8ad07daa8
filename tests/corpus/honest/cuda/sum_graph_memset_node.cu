// task: cuda_sum_reduction
// style: graph_memset_node_double_atomics
// what: a graph clears a double accumulator with a memset node, adds block sums with atomics and converts the result

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr unsigned BLOCKS = 528;

#define CHECK(call)                       \
    do {                                  \
        const cudaError_t result = (call); \
        if (result != cudaSuccess) {      \
            return result;                \
        }                                 \
    } while (0)

__global__ void accumulate(const float *x, int64_t count, double *accumulator) {
    __shared__ double shared[THREADS / 32];
    double own = 0.0;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x; i < count; i += gridDim.x * THREADS) {
        own += x[i];
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        own += __shfl_down_sync(0xffffffffu, own, offset);
    }
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = own;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < THREADS / 32; ++warp) {
            own += shared[warp];
        }
        atomicAdd(accumulator, own);
    }
}

__global__ void convert(const double *accumulator, float *total) {
    *total = static_cast<float>(*accumulator);
}

struct State {
    double *accumulator;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaGraphNode_t clear;
    cudaGraphNode_t add;
    cudaGraphNode_t finish;
};

static void describe(cudaKernelNodeParams &params, void *function, unsigned blocks, unsigned threads, void **arguments) {
    params = cudaKernelNodeParams{};
    params.func = function;
    params.gridDim = dim3(blocks);
    params.blockDim = dim3(threads);
    params.kernelParams = arguments;
}

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    State *made = new State{};
    *state = made;
    CHECK(cudaMalloc(&made->accumulator, sizeof(double)));
    CHECK(cudaGraphCreate(&made->graph, 0));

    cudaMemsetParams clear = {};
    clear.dst = made->accumulator;
    clear.elementSize = 4;
    clear.width = sizeof(double) / 4;
    clear.height = 1;
    clear.pitch = sizeof(double);
    clear.value = 0;
    CHECK(cudaGraphAddMemsetNode(&made->clear, made->graph, nullptr, 0, &clear));

    // The tensors are not known yet: every call sets them.
    const float *x = nullptr;
    int64_t count = 0;
    float *total = nullptr;
    void *add_arguments[] = {&x, &count, &made->accumulator};
    void *finish_arguments[] = {&made->accumulator, &total};
    cudaKernelNodeParams params;
    describe(params, reinterpret_cast<void *>(accumulate), BLOCKS, THREADS, add_arguments);
    CHECK(cudaGraphAddKernelNode(&made->add, made->graph, &made->clear, 1, &params));
    describe(params, reinterpret_cast<void *>(convert), 1, 1, finish_arguments);
    CHECK(cudaGraphAddKernelNode(&made->finish, made->graph, &made->add, 1, &params));
    CHECK(cudaGraphInstantiate(&made->executable, made->graph, 0));
    return 0;
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    State *made = static_cast<State *>(state);
    const float *x = static_cast<const float *>(inputs[0].data);
    int64_t count = inputs[0].shape[0];
    float *total = static_cast<float *>(outputs[0].data);
    void *add_arguments[] = {&x, &count, &made->accumulator};
    void *finish_arguments[] = {&made->accumulator, &total};
    const int64_t needed = (count + THREADS - 1) / THREADS;
    cudaKernelNodeParams params;
    describe(params, reinterpret_cast<void *>(accumulate), needed < BLOCKS ? static_cast<unsigned>(needed) : BLOCKS, THREADS,
             add_arguments);
    CHECK(cudaGraphExecKernelNodeSetParams(made->executable, made->add, &params));
    describe(params, reinterpret_cast<void *>(convert), 1, 1, finish_arguments);
    CHECK(cudaGraphExecKernelNodeSetParams(made->executable, made->finish, &params));
    CHECK(cudaGraphLaunch(made->executable, static_cast<cudaStream_t>(stream)));
    return 0;
}

NS_EXPORT void ns_free(void *state) {
    State *made = static_cast<State *>(state);
    if (made == nullptr) {
        return;
    }
    if (made->executable != nullptr) {
        cudaGraphExecDestroy(made->executable);
    }
    if (made->graph != nullptr) {
        cudaGraphDestroy(made->graph);
    }
    cudaFree(made->accumulator);
    delete made;
}
