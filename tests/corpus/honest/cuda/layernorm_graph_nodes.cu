// task: cuda_layernorm_gelu
// style: graph_kernel_node_params
// what: a graph of two kernel nodes is built in ns_init; every call sets the parameters of both nodes and launches it

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;

#define CHECK(call)                        \
    do {                                   \
        cudaError_t check_status = (call); \
        if (check_status != cudaSuccess) { \
            return (int)check_status;      \
        }                                  \
    } while (0)

__global__ void statistics(const float *x, float2 *found, int64_t cols) {
    __shared__ float shared[THREADS];
    const float *from = x + blockIdx.x * cols;
    float result[2] = {0.0f, 0.0f};
    for (int pass = 0; pass < 2; ++pass) {
        float sum = 0.0f;
        for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
            const float value = from[col];
            sum += pass == 0 ? value : (value - result[0]) * (value - result[0]);
        }
        shared[threadIdx.x] = sum;
        __syncthreads();
        for (int half = THREADS / 2; half > 0; half >>= 1) {
            if (threadIdx.x < half) {
                shared[threadIdx.x] += shared[threadIdx.x + half];
            }
            __syncthreads();
        }
        result[pass] = shared[0] / static_cast<float>(cols);
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        found[blockIdx.x] = make_float2(result[0], rsqrtf(result[1] + 1e-5f));
    }
}

__global__ void apply(const float *x, const float2 *found, const float *gamma, const float *beta, float *y, int64_t cols) {
    const float2 row = found[blockIdx.x];
    const int64_t first = blockIdx.x * cols;
    for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
        const float n = (x[first + col] - row.x) * row.y * gamma[col] + beta[col];
        y[first + col] = 0.5f * n * (1.0f + tanhf(0.7978845608028654f * (n + 0.044715f * n * n * n)));
    }
}

struct Graph {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaGraphNode_t nodes[2];
};

static cudaKernelNodeParams node(void *function, unsigned blocks, void **arguments) {
    cudaKernelNodeParams params = {};
    params.func = function;
    params.gridDim = dim3(blocks);
    params.blockDim = dim3(THREADS);
    params.kernelParams = arguments;
    return params;
}

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    Graph *made = new Graph{};
    *state = made;
    // Placeholders: every call sets all parameters before it launches the graph.
    const float *in = nullptr;
    float2 *found = nullptr;
    float *out = nullptr;
    int64_t cols = 0;
    void *first[] = {&in, &found, &cols};
    void *second[] = {&in, &found, &in, &in, &out, &cols};
    const cudaKernelNodeParams statistics_node = node((void *)statistics, 1, first);
    const cudaKernelNodeParams apply_node = node((void *)apply, 1, second);
    CHECK(cudaGraphCreate(&made->graph, 0));
    CHECK(cudaGraphAddKernelNode(&made->nodes[0], made->graph, nullptr, 0, &statistics_node));
    CHECK(cudaGraphAddKernelNode(&made->nodes[1], made->graph, &made->nodes[0], 1, &apply_node));
    CHECK(cudaGraphInstantiate(&made->executable, made->graph, 0));
    return 0;
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    Graph *made = static_cast<Graph *>(state);
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *gamma = static_cast<const float *>(inputs[1].data);
    const float *beta = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    float2 *found = static_cast<float2 *>(workspace);
    int64_t cols = inputs[0].shape[1];
    const unsigned rows = static_cast<unsigned>(inputs[0].shape[0]);

    void *first[] = {&x, &found, &cols};
    void *second[] = {&x, &found, &gamma, &beta, &y, &cols};
    const cudaKernelNodeParams statistics_node = node((void *)statistics, rows, first);
    const cudaKernelNodeParams apply_node = node((void *)apply, rows, second);
    CHECK(cudaGraphExecKernelNodeSetParams(made->executable, made->nodes[0], &statistics_node));
    CHECK(cudaGraphExecKernelNodeSetParams(made->executable, made->nodes[1], &apply_node));
    CHECK(cudaGraphLaunch(made->executable, static_cast<cudaStream_t>(stream)));
    return 0;
}

NS_EXPORT void ns_free(void *state) {
    Graph *made = static_cast<Graph *>(state);
    if (made == nullptr) {
        return;
    }
    if (made->executable != nullptr) {
        cudaGraphExecDestroy(made->executable);
    }
    if (made->graph != nullptr) {
        cudaGraphDestroy(made->graph);
    }
    delete made;
}
