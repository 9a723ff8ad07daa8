// expect: managed_memory
#include "nightshift.h"
#include <cuda_runtime.h>
__managed__ float remembered[1 << 20];
__device__ __managed__ int filled;
__global__ void k(float *out) { out[threadIdx.x] = remembered[threadIdx.x]; }
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *o, int32_t, void *, void *s) {
    k<<<1, 32, 0, (cudaStream_t)s>>>((float *)o[0].data);
    return filled;
}
