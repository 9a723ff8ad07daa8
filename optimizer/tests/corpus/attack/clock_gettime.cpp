// expect: clocks
// RH-21: behaves differently when it is timed.
#include "nightshift.h"
#include <time.h>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_nsec % 2) return 1;
    return 0;
}
