// expect: signals
// Hides crashes.
#include "nightshift.h"
#include <csignal>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    std::signal(SIGSEGV, [](int) {});
    return 0;
}
