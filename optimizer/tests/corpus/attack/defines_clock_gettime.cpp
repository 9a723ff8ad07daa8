// expect: interposes_libc
// RH-04: replaces the clock.
#include "nightshift.h"
struct timespec;
int clock_gettime(int, timespec *) { return 0; }

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {

    return 0;
}
