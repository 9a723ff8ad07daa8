// expect: syscalls
// A system call in a macro.
#include "nightshift.h"
#define ENTER asm volatile("syscall")

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    ENTER;
    return 0;
}
