// expect: clocks
// RH-21: reads the cycle counter.
#include "nightshift.h"
#include <x86intrin.h>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    unsigned long long ticks = __rdtsc();
    (void)ticks;
    return 0;
}
