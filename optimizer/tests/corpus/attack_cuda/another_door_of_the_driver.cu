// expect: loading
#include "nightshift.h"
#include <cuda_runtime.h>
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) {
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    return cudaGetDriverEntryPoint("cuCtxDestroy", &entry, cudaEnableDefault, &found);
}
