// expect: code_at_load
// RH-43 in the standard spelling.
#include "nightshift.h"
[[gnu::constructor]] static void early() {}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {

    return 0;
}
