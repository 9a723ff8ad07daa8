// expect: interposes_libc
#include "nightshift.h"
struct timespec;
extern "C" int clock_gettime(int, timespec *) { return 0; }
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) { return 0; }
