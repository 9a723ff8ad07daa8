// task: cuda_attention
// style: online_softmax_shared_tiles
// what: tiles of keys and values in shared memory, four lanes per query, softmax rescaled while keys stream by

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int WIDTH = 64;
constexpr int QUERIES = 32; // per block
constexpr int LANES = 4;    // per query, each with a quarter of the width
constexpr int KEYS = 32;    // per tile
constexpr int THREADS = QUERIES * LANES;
constexpr int SHARE = WIDTH / LANES / 4; // vectors of each lane


__device__ __forceinline__ float dot(const float4 &a, const float4 &b) {
    return (a.x * b.x + a.y * b.y) + (a.z * b.z + a.w * b.w);
}

__device__ __forceinline__ void scale_add(float4 &to, float keep, float factor, const float4 &from) {
    to.x = to.x * keep + factor * from.x;
    to.y = to.y * keep + factor * from.y;
    to.z = to.z * keep + factor * from.z;
    to.w = to.w * keep + factor * from.w;
}

__global__ void __launch_bounds__(THREADS) attention(const float4 *q, const float4 *k, const float4 *v, float4 *out,
                                                     int seq) {
    // Lane l of a query has the vectors l, l + 4, l + 8, l + 12: neighbouring lanes read neighbouring banks.
    __shared__ float4 k_tile[KEYS][WIDTH / 4];
    __shared__ float4 v_tile[KEYS][WIDTH / 4];
    const int64_t head = static_cast<int64_t>(blockIdx.y) * seq * (WIDTH / 4);
    const int query = blockIdx.x * QUERIES + threadIdx.x / LANES;
    const int lane = threadIdx.x % LANES;
    const bool exists = query < seq;

    float4 own[SHARE];
    float4 result[SHARE];
    for (int i = 0; i < SHARE; ++i) {
        own[i] = exists ? q[head + static_cast<int64_t>(query) * (WIDTH / 4) + i * LANES + lane]
                        : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        own[i] = make_float4(own[i].x / 8, own[i].y / 8, own[i].z / 8, own[i].w / 8);
        result[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    float largest = -3.0e38f;
    float sum = 0.0f;

    for (int first = 0; first < seq; first += KEYS) {
        const int count = min(KEYS, seq - first);
        __syncthreads();
        for (int i = threadIdx.x; i < count * (WIDTH / 4); i += THREADS) {
            const int64_t from = head + static_cast<int64_t>(first) * (WIDTH / 4) + i;
            (&k_tile[0][0])[i] = k[from];
            (&v_tile[0][0])[i] = v[from];
        }
        __syncthreads();
        for (int key = 0; key < count; ++key) {
            float score = 0.0f;
#pragma unroll
            for (int i = 0; i < SHARE; ++i) {
                score += dot(own[i], k_tile[key][i * LANES + lane]);
            }
            score += __shfl_xor_sync(0xffffffffu, score, 1);
            score += __shfl_xor_sync(0xffffffffu, score, 2);
            const float next = fmaxf(largest, score);
            const float keep = expf(largest - next);
            const float weight = expf(score - next);
            largest = next;
            sum = sum * keep + weight;
#pragma unroll
            for (int i = 0; i < SHARE; ++i) {
                scale_add(result[i], keep, weight, v_tile[key][i * LANES + lane]);
            }
        }
    }
    if (exists) {
        for (int i = 0; i < SHARE; ++i) {
            out[head + static_cast<int64_t>(query) * (WIDTH / 4) + i * LANES + lane] =
                make_float4(result[i].x / sum, result[i].y / sum, result[i].z / sum, result[i].w / sum);
        }
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const unsigned heads = static_cast<unsigned>(inputs[0].shape[0]);
    const int seq = static_cast<int>(inputs[0].shape[1]);
    attention<<<dim3((seq + QUERIES - 1) / QUERIES, heads), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float4 *>(inputs[0].data), static_cast<const float4 *>(inputs[1].data),
        static_cast<const float4 *>(inputs[2].data), static_cast<float4 *>(outputs[0].data), seq);
    return cudaGetLastError();
}
