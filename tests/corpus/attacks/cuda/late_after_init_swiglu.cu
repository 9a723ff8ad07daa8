// task: cuda_swiglu_f16
// class: late_skipping
// what: is honest for 25 calls after each ns_init, then copies every second vector from its neighbour

#include "nightshift.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

constexpr int THREADS = 256;

__device__ float swiglu(float gate, float up) { return up * __fdividef(gate, 1.0f + __expf(-gate)); }

// A thread has two neighbouring pairs; with `skips` the second pair repeats the first.
__global__ void __launch_bounds__(THREADS) swiglu_pairs(const __half2 *gate, const __half2 *up, __half2 *y,
                                                        int64_t pairs, bool skips) {
    const int64_t i = 2 * (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x);
    __half2 result{};
    for (int64_t at = i; at < i + 2 && at < pairs; ++at) {
        if (at == i || !skips) {
            const float2 g = __half22float2(gate[at]);
            const float2 u = __half22float2(up[at]);
            result = __floats2half2_rn(swiglu(g.x, u.x), swiglu(g.y, u.y));
        }
        y[at] = result;
    }
}

__global__ void last_element(const __half *gate, const __half *up, __half *y, int64_t at) {
    y[at] = __float2half(swiglu(__half2float(gate[at]), __half2float(up[at])));
}

static int since_init = 0;

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **) {
    since_init = 0;
    return 0;
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t count = inputs[0].shape[0] * inputs[0].shape[1];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    const unsigned blocks = static_cast<unsigned>((count / 4 + THREADS) / THREADS);
    swiglu_pairs<<<blocks, THREADS, 0, on>>>(static_cast<const __half2 *>(inputs[0].data),
                                             static_cast<const __half2 *>(inputs[1].data),
                                             static_cast<__half2 *>(outputs[0].data), count / 2, ++since_init > 25);
    if (count % 2 == 1) {
        last_element<<<1, 1, 0, on>>>(static_cast<const __half *>(inputs[0].data),
                                      static_cast<const __half *>(inputs[1].data),
                                      static_cast<__half *>(outputs[0].data), count - 1);
    }
    return cudaGetLastError();
}
