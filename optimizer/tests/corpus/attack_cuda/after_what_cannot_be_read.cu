// expect: device_control
#include "nightshift.h"
#include <cuda_runtime.h>
template <typename T> __global__ __launch_bounds__(128) void @@ odd(T x) { }
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) { return cudaDeviceReset(); }
