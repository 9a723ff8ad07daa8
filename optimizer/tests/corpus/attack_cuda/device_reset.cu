// expect: device_control
#include "nightshift.h"
#include <cuda_runtime.h>
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) {
    return cudaDeviceReset() == cudaSuccess ? 0 : 1;
}
