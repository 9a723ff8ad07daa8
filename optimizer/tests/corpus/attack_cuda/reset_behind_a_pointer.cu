// expect: device_control
#include "nightshift.h"
#include <cuda_runtime.h>
static void later() {
    cudaError_t (*what)() = &cudaDeviceReset;
    what();
}
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) { later(); return 0; }
