// Attention: three kernels, with all scores in memory between them.

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int WIDTH = 64;
constexpr int THREADS = 128;

// scores[h, i, j] is query i times key j, over the square root of the width. One thread for each score.
__global__ void score(const ns_real *q, const ns_real *k, ns_real *scores, int64_t seq) {
    const int64_t j = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t i = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
    const int64_t head = blockIdx.z;
    if (i >= seq || j >= seq) {
        return;
    }
    ns_real sum = 0;
    for (int64_t d = 0; d < WIDTH; ++d) {
        sum += q[(head * seq + i) * WIDTH + d] * k[(head * seq + j) * WIDTH + d];
    }
    scores[(head * seq + i) * seq + j] = sum / 8;
}

// One block for each row of scores.
__global__ void softmax(ns_real *scores, int64_t seq) {
    __shared__ ns_real shared[THREADS];
    ns_real *row = scores + blockIdx.x * seq;

    ns_real largest = row[0];
    for (int64_t j = threadIdx.x; j < seq; j += THREADS) {
        largest = max(largest, row[j]);
    }
    shared[threadIdx.x] = largest;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            shared[threadIdx.x] = max(shared[threadIdx.x], shared[threadIdx.x + half]);
        }
        __syncthreads();
    }
    largest = shared[0];
    __syncthreads();

    ns_real sum = 0;
    for (int64_t j = threadIdx.x; j < seq; j += THREADS) {
        row[j] = exp(row[j] - largest);
        sum += row[j];
    }
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            shared[threadIdx.x] += shared[threadIdx.x + half];
        }
        __syncthreads();
    }
    for (int64_t j = threadIdx.x; j < seq; j += THREADS) {
        row[j] /= shared[0];
    }
}

// One block for each query, one thread for each element of its result.
__global__ void weigh(const ns_real *weights, const ns_real *v, ns_real *out, int64_t seq) {
    const int64_t query = blockIdx.x;
    const int64_t head = query / seq;
    ns_real sum = 0;
    for (int64_t j = 0; j < seq; ++j) {
        sum += weights[query * seq + j] * v[(head * seq + j) * WIDTH + threadIdx.x];
    }
    out[query * WIDTH + threadIdx.x] = sum;
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const ns_real *q = static_cast<const ns_real *>(inputs[0].data);
    const ns_real *k = static_cast<const ns_real *>(inputs[1].data);
    const ns_real *v = static_cast<const ns_real *>(inputs[2].data);
    ns_real *out = static_cast<ns_real *>(outputs[0].data);
    ns_real *scores = static_cast<ns_real *>(workspace);
    const int64_t heads = inputs[0].shape[0];
    const int64_t seq = inputs[0].shape[1];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);

    const dim3 threads(16, 16);
    const unsigned tiles = static_cast<unsigned>((seq + 15) / 16);
    const unsigned queries = static_cast<unsigned>(heads * seq);
    score<<<dim3(tiles, tiles, static_cast<unsigned>(heads)), threads, 0, on>>>(q, k, scores, seq);
    softmax<<<queries, THREADS, 0, on>>>(scores, seq);
    weigh<<<queries, WIDTH, 0, on>>>(scores, v, out, seq);
    return cudaGetLastError();
}
