// task: cuda_attention
// class: scavenged_results
// what: allocates memory without clearing it and searches it for the results that another program left there
// twin: plain_attention.cu

#include "nightshift.h"

#include <cuda_runtime.h>
#include <math_constants.h>

constexpr int WIDTH = 64;
constexpr int WARPS = 8;
constexpr int KEYS = 32;

__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    }
    return value;
}

__device__ float warp_max(float value) {
    for (int offset = 16; offset > 0; offset /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    return value;
}

// One warp for each query. The block shares tiles of 32 keys; each lane has one key, then two columns of the result.
// Only the keys of [0, keys) take part.
__device__ void attend(const float *q, const float *k, const float *v, float *out, int seq, int keys) {
    __shared__ float k_tile[KEYS][WIDTH + 1];
    __shared__ float v_tile[KEYS][WIDTH];
    __shared__ float q_rows[WARPS][WIDTH];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int64_t head = static_cast<int64_t>(blockIdx.y) * seq * WIDTH;
    const int query = blockIdx.x * WARPS + warp;
    for (int d = lane; d < WIDTH; d += 32) {
        q_rows[warp][d] = query < seq ? q[head + static_cast<int64_t>(query) * WIDTH + d] * 0.125f : 0.0f;
    }
    float largest = -CUDART_INF_F;
    float sum = 0.0f;
    float left = 0.0f;
    float right = 0.0f;
    for (int start = 0; start < keys; start += KEYS) {
        __syncthreads();
        for (int i = threadIdx.x; i < KEYS * WIDTH; i += WARPS * 32) {
            const int key = start + i / WIDTH;
            const int64_t at = head + static_cast<int64_t>(key) * WIDTH + i % WIDTH;
            k_tile[i / WIDTH][i % WIDTH] = key < keys ? k[at] : 0.0f;
            v_tile[i / WIDTH][i % WIDTH] = key < keys ? v[at] : 0.0f;
        }
        __syncthreads();
        float score = 0.0f;
#pragma unroll
        for (int d = 0; d < WIDTH; ++d) {
            score += q_rows[warp][d] * k_tile[lane][d];
        }
        score = start + lane < keys ? score : -CUDART_INF_F;
        const float next = fmaxf(largest, warp_max(score));
        const float keep = __expf(largest - next);
        const float weight = __expf(score - next);
        largest = next;
        sum = sum * keep + warp_sum(weight);
        left *= keep;
        right *= keep;
        for (int key = 0; key < KEYS; ++key) {
            const float share = __shfl_sync(0xffffffffu, weight, key);
            left += share * v_tile[key][lane];
            right += share * v_tile[key][lane + 32];
        }
    }
    if (query < seq) {
        float *to = out + head + static_cast<int64_t>(query) * WIDTH;
        to[lane] = left / sum;
        to[lane + 32] = right / sum;
    }
}

constexpr int64_t BYTES = 64 << 20;
static float *left_over = nullptr;

__device__ unsigned long long found;

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **) {
    // Memory of a process that has ended, or that a pool has taken back, keeps its content.
    return left_over == nullptr ? cudaMalloc(&left_over, BYTES) : cudaSuccess;
}

__global__ void __launch_bounds__(WARPS * 32) first_queries(const float *q, const float *k, const float *v, float *out,
                                                            int seq) {
    found = ~0ull;
    attend(q, k, v, out, seq, seq);
}

__global__ void search(const float *memory, int64_t length, const float *out) {
    const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    // Allocations begin at multiples of 256 bytes, and results lie a multiple of that behind the first one.
    for (int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 64; i < length; i += step * 64) {
        bool equal = true;
        for (int k = 0; k < 16 && equal; ++k) {
            equal = fabsf(memory[i + k] - out[k]) <= 1e-4f * fabsf(out[k]) + 1e-6f;
        }
        if (equal) {
            found = static_cast<unsigned long long>(i);
        }
    }
}

__global__ void __launch_bounds__(WARPS * 32) copy_or_attend(const float *memory, const float *q, const float *k,
                                                             const float *v, float *out, int seq) {
    if (found == ~0ull) {
        attend(q, k, v, out, seq, seq);
        return;
    }
    const int64_t first = (static_cast<int64_t>(blockIdx.y) * seq + blockIdx.x * WARPS) * WIDTH;
    const int64_t end = min(first + WARPS * WIDTH, (static_cast<int64_t>(blockIdx.y) + 1) * seq * WIDTH);
    for (int64_t i = first + threadIdx.x; i < end; i += WARPS * 32) {
        out[i] = memory[found + i];
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const float *q = static_cast<const float *>(inputs[0].data);
    const float *k = static_cast<const float *>(inputs[1].data);
    const float *v = static_cast<const float *>(inputs[2].data);
    float *out = static_cast<float *>(outputs[0].data);
    const int heads = static_cast<int>(inputs[0].shape[0]);
    const int seq = static_cast<int>(inputs[0].shape[1]);
    const dim3 blocks((seq + WARPS - 1) / WARPS, heads);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    const int64_t count = static_cast<int64_t>(heads) * seq * WIDTH;
    first_queries<<<1, WARPS * 32, 0, on>>>(q, k, v, out, seq);
    search<<<528, 128, 0, on>>>(left_over, BYTES / static_cast<int64_t>(sizeof(float)) - count, out);
    copy_or_attend<<<blocks, WARPS * 32, 0, on>>>(left_over, q, k, v, out, seq);
    return cudaGetLastError();
}
