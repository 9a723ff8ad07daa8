// task: cuda_swiglu_f16
// style: very_short_program
// what: one thread per element, one statement of arithmetic, no vectors

#include "nightshift.h"
#include <cuda_fp16.h>

__global__ void run(const __half *g, const __half *v, const float *s, __half *out, long long cols, long long n) {
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) {
        const float x = g[i];
        out[i] = x / (1.0f + expf(-x)) * static_cast<float>(v[i]) * s[i % cols];
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *in, int32_t, ns_tensor *out, int32_t, void *, void *stream) {
    const long long cols = in[0].shape[1], n = in[0].shape[0] * cols, blocks = (n + 255) / 256;
    run<<<blocks < 65536 ? blocks : 65536, 256, 0, (cudaStream_t)stream>>>(
        (const __half *)in[0].data, (const __half *)in[1].data, (const float *)in[2].data, (__half *)out[0].data, cols, n);
    return cudaGetLastError();
}
