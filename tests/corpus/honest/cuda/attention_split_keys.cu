// task: cuda_attention
// style: workspace_split_and_combine
// what: each block attends to a slice of the keys and leaves maximum, sum and result in the workspace; a second kernel combines

#include "nightshift.h"

#include <cuda_runtime.h>

NIGHTSHIFT_TUNABLE(SLICE, 128, 32, 64, 128, 256);

constexpr int WIDTH = 64;
constexpr int QUERIES = 16;
constexpr int THREADS = 128; // eight lanes for each query, each with eight columns
constexpr int LANES = THREADS / QUERIES;
constexpr int EACH = WIDTH / LANES;
constexpr int TILE = 32;
constexpr float LOWEST = -3.0e38f;

struct Slices {
    float *results;  // slices, queries, WIDTH
    float2 *summary; // slices, queries: largest score and sum of exponentials
};

__global__ void __launch_bounds__(THREADS) attend(const float *q, const float *k, const float *v, Slices to, int seq) {
    __shared__ float k_tile[TILE][WIDTH];
    __shared__ float v_tile[TILE][WIDTH];
    const int64_t head = static_cast<int64_t>(blockIdx.y) * seq;
    const int query = blockIdx.x * QUERIES + threadIdx.x / LANES;
    const int lane = threadIdx.x % LANES;
    const int begin = blockIdx.z * SLICE;
    const int end = min(seq, begin + SLICE);

    float own[EACH];
    float result[EACH] = {};
    for (int i = 0; i < EACH; ++i) {
        own[i] = query < seq ? q[(head + query) * WIDTH + i * LANES + lane] * 0.125f : 0.0f;
    }
    float largest = LOWEST;
    float sum = 0.0f;
    for (int first = begin; first < end; first += TILE) {
        const int keys = min(TILE, end - first);
        __syncthreads();
        for (int i = threadIdx.x; i < keys * WIDTH; i += THREADS) {
            k_tile[i / WIDTH][i % WIDTH] = k[(head + first) * WIDTH + i];
            v_tile[i / WIDTH][i % WIDTH] = v[(head + first) * WIDTH + i];
        }
        __syncthreads();
        for (int key = 0; key < keys; ++key) {
            float score = 0.0f;
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                score += own[i] * k_tile[key][i * LANES + lane];
            }
            for (int offset = LANES / 2; offset > 0; offset /= 2) {
                score += __shfl_xor_sync(0xffffffffu, score, offset, LANES);
            }
            if (score > largest) {
                const float keep = expf(largest - score);
                largest = score;
                sum *= keep;
#pragma unroll
                for (int i = 0; i < EACH; ++i) {
                    result[i] *= keep;
                }
            }
            const float weight = expf(score - largest);
            sum += weight;
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                result[i] += weight * v_tile[key][i * LANES + lane];
            }
        }
    }
    if (query < seq) {
        const int64_t at = (static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y) * seq + query;
        for (int i = 0; i < EACH; ++i) {
            to.results[at * WIDTH + i * LANES + lane] = result[i];
        }
        if (lane == 0) {
            to.summary[at] = make_float2(largest, sum);
        }
    }
}

__global__ void combine(Slices from, float *out, int64_t queries, int slices) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= queries * WIDTH) {
        return;
    }
    const int64_t query = i / WIDTH;
    float largest = LOWEST;
    for (int s = 0; s < slices; ++s) {
        largest = fmaxf(largest, from.summary[s * queries + query].x);
    }
    float sum = 0.0f;
    float result = 0.0f;
    for (int s = 0; s < slices; ++s) {
        const float2 summary = from.summary[s * queries + query];
        const float factor = expf(summary.x - largest);
        sum += summary.y * factor;
        result += from.results[s * queries * WIDTH + i] * factor;
    }
    out[i] = result / sum;
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const int64_t heads = inputs[0].shape[0];
    const int seq = static_cast<int>(inputs[0].shape[1]);
    const int64_t queries = heads * seq;
    const int slices = (seq + SLICE - 1) / SLICE;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    if (slices * queries * static_cast<int64_t>(WIDTH * sizeof(float) + sizeof(float2)) >
        static_cast<int64_t>(NS_WORKSPACE_BYTES)) {
        return cudaErrorMemoryAllocation;
    }
    Slices partial{};
    partial.results = static_cast<float *>(workspace);
    partial.summary = reinterpret_cast<float2 *>(partial.results + slices * queries * WIDTH);
    const dim3 blocks((seq + QUERIES - 1) / QUERIES, static_cast<unsigned>(heads), slices);
    attend<<<blocks, THREADS, 0, on>>>(static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
                                       static_cast<const float *>(inputs[2].data), partial, seq);
    combine<<<static_cast<unsigned>((queries * WIDTH + 255) / 256), 256, 0, on>>>(
        partial, static_cast<float *>(outputs[0].data), queries, slices);
    return cudaGetLastError();
}
