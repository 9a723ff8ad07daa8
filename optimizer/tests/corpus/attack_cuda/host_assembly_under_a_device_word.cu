// expect: syscalls
#include "nightshift.h"
__host__ __device__ inline int leave() {
    asm volatile(".byte 0x0f, 0x05");
    return 0;
}
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) { return leave(); }
