// expect: clocks
#include "nightshift.h"
#include <cuda_runtime.h>
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) {
    cudaEvent_t a, b;
    cudaEventCreate(&a);
    cudaEventCreate(&b);
    float ms = 0;
    cudaEventElapsedTime(&ms, a, b);
    return ms > 1.0f;
}
