// task: cuda_row_softmax
// style: thread_block_cluster
// what: a cluster of four blocks shares each long row and exchanges maxima and sums through distributed shared memory

#include "nightshift.h"

#include <cooperative_groups.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

constexpr int CLUSTER = 4;
constexpr int THREADS = 128;

struct Partial {
    float largest;
    float sum;
};

__device__ Partial merge(Partial a, Partial b) {
    const float largest = fmaxf(a.largest, b.largest);
    return {largest, a.sum * expf(a.largest - largest) + b.sum * expf(b.largest - largest)};
}

__device__ Partial block_merge(Partial own, Partial *shared) {
    shared[threadIdx.x] = own;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            shared[threadIdx.x] = merge(shared[threadIdx.x], shared[threadIdx.x + half]);
        }
        __syncthreads();
    }
    return shared[0];
}

__global__ void __launch_bounds__(THREADS) softmax(const float *x, float *y, int64_t cols) {
    __shared__ Partial shared[THREADS];
    __shared__ Partial block_result;
    const cg::cluster_group cluster = cg::this_cluster();
    const unsigned rank = cluster.block_rank();
    const int64_t row = blockIdx.x / CLUSTER;
    const float *from = x + row * cols;
    float *to = y + row * cols;

    // A finite start keeps the difference of two empty parts from becoming a NaN.
    Partial own{-3.0e38f, 0.0f};
    for (int64_t col = rank * THREADS + threadIdx.x; col < cols; col += CLUSTER * THREADS) {
        own = merge(own, {from[col], 1.0f});
    }
    own = block_merge(own, shared);
    if (threadIdx.x == 0) {
        block_result = own;
    }
    cluster.sync();

    Partial all = *cluster.map_shared_rank(&block_result, 0);
    for (unsigned other = 1; other < CLUSTER; ++other) {
        all = merge(all, *cluster.map_shared_rank(&block_result, other));
    }
    for (int64_t col = rank * THREADS + threadIdx.x; col < cols; col += CLUSTER * THREADS) {
        to[col] = expf(from[col] - all.largest) / all.sum;
    }
    // No block may exit while another one reads its shared memory.
    cluster.sync();
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];

    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = CLUSTER;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(rows * CLUSTER));
    config.blockDim = dim3(THREADS);
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, softmax, x, y, cols);
}
