// expect: clocks
#include "nightshift.h"
extern "C" long clock();
__device__ float helper(float x) { return x; }
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) { return clock() == 0; }
