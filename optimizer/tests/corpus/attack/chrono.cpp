// expect: clocks
// RH-21: asks for the time.
#include "nightshift.h"
NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    auto now = std::chrono::steady_clock::now();
    (void)now;
    return 0;
}
