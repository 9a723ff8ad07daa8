// expect: interposes_cuda
#include "nightshift.h"
#include <cuda_runtime.h>
__attribute__((visibility("default"))) cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) { return 0; }
