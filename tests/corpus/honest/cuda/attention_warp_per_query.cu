// task: cuda_attention
// style: warp_shuffles_lambdas
// what: one warp per query; a lane scores one of 32 keys, then owns two columns of the result; weights travel by shuffles

#include "nightshift.h"

#include <cuda_runtime.h>

#include <cstdint>

namespace {

constexpr int WIDTH = 64;
constexpr int WARPS = 8;
constexpr unsigned ALL = 0xffffffffu;

__global__ void __launch_bounds__(WARPS * 32) attention(const float *q, const float *k, const float *v, float *out,
                                                        int64_t queries, int64_t seq) {
    __shared__ float own_query[WARPS][WIDTH];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int64_t query = static_cast<int64_t>(blockIdx.x) * WARPS + warp;
    if (query >= queries) {
        return; // the whole warp; the block has no other barrier than those of its warps
    }
    const int64_t head = query / seq * seq * WIDTH;
    for (int d = lane; d < WIDTH; d += 32) {
        own_query[warp][d] = q[query * WIDTH + d] * 0.125f;
    }
    __syncwarp();

    const auto fold = [](float value, auto operation) {
        for (int offset = 16; offset > 0; offset /= 2) {
            value = operation(value, __shfl_xor_sync(ALL, value, offset));
        }
        return value;
    };
    const auto larger = [](float a, float b) { return fmaxf(a, b); };
    const auto plus = [](float a, float b) { return a + b; };

    float largest = -3.0e38f;
    float sum = 0.0f;
    float2 result = make_float2(0.0f, 0.0f);
    for (int64_t first = 0; first < seq; first += 32) {
        const int64_t key = first + lane;
        float score = -3.0e38f;
        if (key < seq) {
            const float4 *row = reinterpret_cast<const float4 *>(k + head + key * WIDTH);
            float parts[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int i = 0; i < WIDTH / 4; ++i) {
                const float4 value = row[i];
                parts[0] += value.x * own_query[warp][4 * i];
                parts[1] += value.y * own_query[warp][4 * i + 1];
                parts[2] += value.z * own_query[warp][4 * i + 2];
                parts[3] += value.w * own_query[warp][4 * i + 3];
            }
            score = (parts[0] + parts[1]) + (parts[2] + parts[3]);
        }
        const float next = fmaxf(largest, fold(score, larger));
        const float keep = expf(largest - next);
        const float weight = key < seq ? expf(score - next) : 0.0f;
        largest = next;
        sum = sum * keep + fold(weight, plus);
        result.x *= keep;
        result.y *= keep;
        const int count = static_cast<int>(seq - first < 32 ? seq - first : 32);
        for (int i = 0; i < count; ++i) {
            const float factor = __shfl_sync(ALL, weight, i);
            const float2 value = *reinterpret_cast<const float2 *>(v + head + (first + i) * WIDTH + 2 * lane);
            result.x += factor * value.x;
            result.y += factor * value.y;
        }
    }
    *reinterpret_cast<float2 *>(out + query * WIDTH + 2 * lane) = make_float2(result.x / sum, result.y / sum);
}

} // namespace

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t seq = inputs[0].shape[1];
    const int64_t queries = inputs[0].shape[0] * seq;
    attention<<<static_cast<unsigned>((queries + WARPS - 1) / WARPS), WARPS * 32, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
        static_cast<const float *>(inputs[2].data), static_cast<float *>(outputs[0].data), queries, seq);
    return cudaGetLastError();
}
