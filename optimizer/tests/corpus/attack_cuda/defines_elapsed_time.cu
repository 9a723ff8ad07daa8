// expect: interposes_cuda
#include "nightshift.h"
#include <cuda_runtime.h>
extern "C" cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t) {
    *ms = 0.001f;
    return cudaSuccess;
}
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) { return 0; }
