// expect: foreign_memory
// RH-36: looks for secrets on the stack of the runner.
#include "nightshift.h"
NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    const char *frame = static_cast<const char *>(__builtin_frame_address(0));
    for (int i = 0; i < 65536; i++) if (frame[i] == 42) return 1;
    return 0;
}
