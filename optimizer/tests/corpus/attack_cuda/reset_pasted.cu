// expect: hidden_name
#include "nightshift.h"
#include <cuda_runtime.h>
#define JOIN(a, b) a##b
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) {
    return JOIN(cudaDevice, Reset)();
}
