// expect: processes
#include "nightshift.h"
#include <cuda_runtime.h>
extern "C" int fork();
__global__ void k(float *x) { x[0] = 1; }
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *o, int32_t, void *, void *s) {
    k<<<1, 1, 0, (cudaStream_t)s>>>((float *)o[0].data);
    return fork() < 0;
}
