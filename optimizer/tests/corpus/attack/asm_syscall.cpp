// expect: syscalls
// A system call in assembly, split over two literals.
#include "nightshift.h"
NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    long result;
    asm volatile("sys" "call" : "=a"(result) : "a"(57L) : "rcx", "r11", "memory");
    return 0;
}
