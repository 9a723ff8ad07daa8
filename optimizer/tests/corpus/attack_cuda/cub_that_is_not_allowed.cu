// expect: forbidden_library
#include "nightshift.h"
#include <cub/device/device_reduce.cuh>
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) { return 0; }
