// task: cuda_sum_reduction
// style: struct_operator_overloads
// what: sums pairs of floats (value and rounding error) with overloaded operators, in two kernels

#include "nightshift.h"

#include <cuda_runtime.h>

namespace exact {

// The unevaluated sum of two floats.
struct Pair {
    float high;
    float low;
};

__device__ __forceinline__ Pair two_sum(float a, float b) {
    const float sum = __fadd_rn(a, b);
    const float b_part = __fsub_rn(sum, a);
    const float a_part = __fsub_rn(sum, b_part);
    return {sum, __fadd_rn(__fsub_rn(a, a_part), __fsub_rn(b, b_part))};
}

__device__ __forceinline__ Pair operator+(Pair a, float b) {
    const Pair sum = two_sum(a.high, b);
    return {sum.high, __fadd_rn(a.low, sum.low)};
}

__device__ __forceinline__ Pair operator+(Pair a, Pair b) {
    const Pair sum = two_sum(a.high, b.high);
    return two_sum(sum.high, __fadd_rn(sum.low, __fadd_rn(a.low, b.low)));
}

__device__ __forceinline__ Pair &operator+=(Pair &a, Pair b) {
    a = a + b;
    return a;
}

__device__ __forceinline__ Pair shuffle_down(Pair value, int offset) {
    return {__shfl_down_sync(0xffffffffu, value.high, offset), __shfl_down_sync(0xffffffffu, value.low, offset)};
}

} // namespace exact

using exact::Pair;

constexpr int THREADS = 256;
constexpr unsigned BLOCKS = 512;

__device__ Pair block_sum(Pair own) {
    __shared__ Pair shared[THREADS / 32];
    for (int offset = 16; offset > 0; offset /= 2) {
        own += shuffle_down(own, offset);
    }
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = own;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < THREADS / 32; ++warp) {
            own += shared[warp];
        }
    }
    return own;
}

__global__ void sum_elements(const float *x, int64_t count, Pair *partials) {
    Pair own{0.0f, 0.0f};
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x; i < count;
         i += static_cast<int64_t>(gridDim.x) * THREADS) {
        own = own + x[i];
    }
    own = block_sum(own);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = own;
    }
}

__global__ void sum_partials(const Pair *partials, int count, float *total) {
    Pair own{0.0f, 0.0f};
    for (int i = threadIdx.x; i < count; i += THREADS) {
        own += partials[i];
    }
    own = block_sum(own);
    if (threadIdx.x == 0) {
        *total = own.high + own.low;
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const int64_t count = inputs[0].shape[0];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    Pair *partials = static_cast<Pair *>(workspace);
    sum_elements<<<BLOCKS, THREADS, 0, on>>>(static_cast<const float *>(inputs[0].data), count, partials);
    sum_partials<<<1, THREADS, 0, on>>>(partials, BLOCKS, static_cast<float *>(outputs[0].data));
    return cudaGetLastError();
}
