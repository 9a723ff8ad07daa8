// expect: foreign_memory
// RH-36: reads the memory of the parent.
#include "nightshift.h"
#include <sys/uio.h>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    process_vm_readv(1, nullptr, 0, nullptr, 0, 0);
    return 0;
}
