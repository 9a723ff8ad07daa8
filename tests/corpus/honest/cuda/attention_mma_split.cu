// task: cuda_attention
// style: tensor_cores_split_precision_flash
// what: both products on tensor cores with factors split into two TF32 numbers, softmax on the fragments in registers

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int WIDTH = 64;
constexpr int WARPS = 4;
constexpr int QUERIES = WARPS * 16; // 16 per warp
constexpr int KEYS = 32;
constexpr int THREADS = WARPS * 32;
constexpr int PITCH = WIDTH + 4;
constexpr int P_PITCH = KEYS + 4;
constexpr float EMPTY = -3.0e38f;

__device__ __forceinline__ unsigned to_tf32(float value) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

struct Split {
    unsigned large;
    unsigned small;

    __device__ __forceinline__ explicit Split(float value) {
        large = to_tf32(value);
        small = to_tf32(value - __uint_as_float(large));
    }
};

__device__ __forceinline__ void mma(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                    unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

__device__ __forceinline__ void mma_split(float (&c)[4], const Split (&a)[4], const Split &b0, const Split &b1) {
    mma(c, a[0].small, a[1].small, a[2].small, a[3].small, b0.large, b1.large);
    mma(c, a[0].large, a[1].large, a[2].large, a[3].large, b0.small, b1.small);
    mma(c, a[0].large, a[1].large, a[2].large, a[3].large, b0.large, b1.large);
}

__global__ void __launch_bounds__(THREADS) attention(const float *q, const float *k, const float *v, float *out, int seq) {
    __shared__ float q_tile[QUERIES][PITCH];
    __shared__ float k_tile[KEYS][PITCH];
    __shared__ float v_tile[KEYS][PITCH];
    __shared__ float weights[WARPS][16][P_PITCH];
    const int64_t head = static_cast<int64_t>(blockIdx.y) * seq * WIDTH;
    const int first_query = blockIdx.x * QUERIES;
    const int warp = threadIdx.x / 32;
    const int group = threadIdx.x % 32 / 4;
    const int member = threadIdx.x % 4;
    const int row = warp * 16 + group; // this lane has the rows `row` and `row + 8` of the block

    for (int i = threadIdx.x; i < QUERIES * WIDTH; i += THREADS) {
        const int query = first_query + i / WIDTH;
        q_tile[i / WIDTH][i % WIDTH] = query < seq ? q[head + static_cast<int64_t>(query) * WIDTH + i % WIDTH] * 0.125f : 0.0f;
    }

    float results[8][4] = {};
    float largest[2] = {EMPTY, EMPTY};
    float sums[2] = {0.0f, 0.0f};
    for (int first = 0; first < seq; first += KEYS) {
        __syncthreads();
        for (int i = threadIdx.x; i < KEYS * WIDTH; i += THREADS) {
            const int key = first + i / WIDTH;
            const int64_t from = head + static_cast<int64_t>(key) * WIDTH + i % WIDTH;
            k_tile[i / WIDTH][i % WIDTH] = key < seq ? k[from] : 0.0f;
            v_tile[i / WIDTH][i % WIDTH] = key < seq ? v[from] : 0.0f;
        }
        __syncthreads();

        float scores[4][4] = {};
#pragma unroll 2
        for (int d = 0; d < WIDTH; d += 8) {
            const Split a[4] = {Split(q_tile[row][d + member]), Split(q_tile[row + 8][d + member]),
                                Split(q_tile[row][d + member + 4]), Split(q_tile[row + 8][d + member + 4])};
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                mma_split(scores[n], a, Split(k_tile[n * 8 + group][d + member]), Split(k_tile[n * 8 + group][d + member + 4]));
            }
        }

#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float next = largest[half];
#pragma unroll
            for (int n = 0; n < 4; ++n) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    if (first + n * 8 + member * 2 + i >= seq) {
                        scores[n][half * 2 + i] = EMPTY;
                    }
                    next = fmaxf(next, scores[n][half * 2 + i]);
                }
            }
            next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 1));
            next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 2));
            const float keep = expf(largest[half] - next);
            largest[half] = next;
            float sum = 0.0f;
#pragma unroll
            for (int n = 0; n < 4; ++n) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const float weight = expf(scores[n][half * 2 + i] - next);
                    weights[warp][group + half * 8][n * 8 + member * 2 + i] = weight;
                    sum += weight;
                }
            }
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            sums[half] = sums[half] * keep + sum;
#pragma unroll
            for (int n = 0; n < 8; ++n) {
                results[n][half * 2] *= keep;
                results[n][half * 2 + 1] *= keep;
            }
        }
        __syncwarp(); // the weights of a warp are read by its own lanes only

        for (int key = 0; key < KEYS; key += 8) {
            const Split a[4] = {Split(weights[warp][group][key + member]), Split(weights[warp][group + 8][key + member]),
                                Split(weights[warp][group][key + member + 4]),
                                Split(weights[warp][group + 8][key + member + 4])};
#pragma unroll
            for (int n = 0; n < 8; ++n) {
                mma_split(results[n], a, Split(v_tile[key + member][n * 8 + group]),
                          Split(v_tile[key + member + 4][n * 8 + group]));
            }
        }
    }

    for (int half = 0; half < 2; ++half) {
        const int query = first_query + row + half * 8;
        if (query < seq) {
            for (int n = 0; n < 8; ++n) {
                const int64_t to = head + static_cast<int64_t>(query) * WIDTH + n * 8 + member * 2;
                out[to] = results[n][half * 2] / sums[half];
                out[to + 1] = results[n][half * 2 + 1] / sums[half];
            }
        }
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int seq = static_cast<int>(inputs[0].shape[1]);
    const dim3 blocks((seq + QUERIES - 1) / QUERIES, static_cast<unsigned>(inputs[0].shape[0]));
    attention<<<blocks, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
        static_cast<const float *>(inputs[2].data), static_cast<float *>(outputs[0].data), seq);
    return cudaGetLastError();
}
