#include "nightshift.h"
#include <cuda_runtime.h>
#include <cfloat>

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS) softmax_rows(const float *__restrict__ in, float *__restrict__ out, int64_t cols) {
    __shared__ float part[THREADS / 32];
    extern __shared__ float row[];
    const float *x = in + static_cast<int64_t>(blockIdx.x) * cols;
    float top = -FLT_MAX;
    for (int64_t c = threadIdx.x; c < cols; c += THREADS) top = fmaxf(top, x[c]);
    top = warp_max(top);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = top;
    __syncthreads();
    for (int w = 0; w < THREADS / 32; ++w) top = fmaxf(top, part[w]);
    for (int64_t c = threadIdx.x; c < cols; c += THREADS) out[blockIdx.x * cols + c] = row[c % 4] + __expf(x[c] - top);
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const dim3 grid(static_cast<unsigned>(inputs[0].shape[0]), 1, 1);
    softmax_rows<256><<<grid, 256, 1024, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), static_cast<float *>(outputs[0].data), inputs[0].shape[1]);
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
}
