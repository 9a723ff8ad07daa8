// task: cuda_layernorm_gelu
// style: kahan_sums_slow
// what: one warp per row with compensated sums and exact merges, one warp per block: right, and slower than it could be

#include "nightshift.h"

#include <cuda_runtime.h>

// A sum and what rounding lost so far (Kahan's method in Neumaier's form). The intrinsics keep the compiler from fusing.
struct Compensated {
    float sum = 0.0f;
    float lost = 0.0f;

    __device__ Compensated &operator+=(float value) {
        const float next = __fadd_rn(sum, value);
        if (fabsf(sum) >= fabsf(value)) {
            lost = __fadd_rn(lost, __fadd_rn(__fsub_rn(sum, next), value));
        } else {
            lost = __fadd_rn(lost, __fadd_rn(__fsub_rn(value, next), sum));
        }
        sum = next;
        return *this;
    }

    __device__ float value() const { return sum + lost; }
};

__device__ float warp_total(Compensated own) {
    for (int offset = 16; offset > 0; offset /= 2) {
        const float sum = __shfl_xor_sync(0xffffffffu, own.sum, offset);
        const float lost = __shfl_xor_sync(0xffffffffu, own.lost, offset);
        own += sum;
        own.lost += lost;
    }
    return own.value();
}

__global__ void layernorm_gelu(const float *x, const float *gamma, const float *beta, float *y, int64_t cols) {
    const float *row = x + blockIdx.x * cols;
    float *out = y + blockIdx.x * cols;

    Compensated total;
    for (int64_t col = threadIdx.x; col < cols; col += 32) {
        total += row[col];
    }
    const float mean = warp_total(total) / static_cast<float>(cols);

    Compensated squares;
    for (int64_t col = threadIdx.x; col < cols; col += 32) {
        const float distance = row[col] - mean;
        squares += distance * distance;
    }
    const float variance = warp_total(squares) / static_cast<float>(cols);
    const float deviation = sqrtf(variance + 1e-5f);

    for (int64_t col = threadIdx.x; col < cols; col += 32) {
        const float n = (row[col] - mean) / deviation * gamma[col] + beta[col];
        out[col] = 0.5f * n * (1.0f + tanhf(0.7978845608028654f * (n + 0.044715f * n * n * n)));
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    layernorm_gelu<<<static_cast<unsigned>(inputs[0].shape[0]), 32, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
        static_cast<const float *>(inputs[2].data), static_cast<float *>(outputs[0].data), inputs[0].shape[1]);
    return cudaGetLastError();
}
