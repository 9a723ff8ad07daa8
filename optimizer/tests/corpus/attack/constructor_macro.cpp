// expect: code_at_load
// RH-43 behind a macro.
#include "nightshift.h"
#define EARLY __attribute__((__constructor__))
EARLY static void early() {}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {

    return 0;
}
