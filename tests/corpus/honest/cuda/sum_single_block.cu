// task: cuda_sum_reduction
// style: slow_but_right
// what: a single block of 1024 threads adds the whole vector: right, and slower than the reference

#include "nightshift.h"

#include <cuda_runtime.h>

// The simplest program that is right. It is a starting point, so speed does not matter here.
__global__ void __launch_bounds__(1024) sum(const float *x, float *total, int64_t count) {
    __shared__ double shared[1024];
    float parts[8] = {0.0f};
    int64_t i = threadIdx.x;
    for (; i + 7 * 1024 < count; i += 8 * 1024) {
        for (int p = 0; p < 8; ++p) {
            parts[p] += x[i + p * 1024];
        }
    }
    for (; i < count; i += 1024) {
        parts[0] += x[i];
    }
    double own = 0.0;
    for (int p = 0; p < 8; ++p) {
        own += parts[p];
    }
    shared[threadIdx.x] = own;
    __syncthreads();
    for (int half = 512; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            shared[threadIdx.x] += shared[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        total[0] = static_cast<float>(shared[0]);
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    sum<<<1, 1024, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const float *>(inputs[0].data),
                                                           static_cast<float *>(outputs[0].data), inputs[0].shape[0]);
    return cudaGetLastError();
}
