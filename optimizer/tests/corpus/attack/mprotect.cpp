// expect: foreign_memory
// RH-36: makes the code of the runner writable.
#include "nightshift.h"
extern "C" int mprotect(void *, unsigned long, int);

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    mprotect(reinterpret_cast<void *>(0x400000), 4096, 7);
    return 0;
}
