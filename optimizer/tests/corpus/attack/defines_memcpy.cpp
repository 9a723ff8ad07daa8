// expect: interposes_libc
// RH-36: replaces a function that the runner uses.
#include "nightshift.h"
#include <cstddef>

extern "C" void *memcpy(void *to, const void *, size_t) { return to; }

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {

    return 0;
}
