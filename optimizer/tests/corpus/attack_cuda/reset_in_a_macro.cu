// expect: device_control
#include "nightshift.h"
#include <cuda_runtime.h>
#define TIDY() cudaDeviceReset()
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) { return TIDY(); }
