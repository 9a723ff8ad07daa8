// expect: files
// RH-37: a memory that survives the process.
#include "nightshift.h"
#include <fstream>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    std::ofstream memo("/dev/shm/memo");
    memo << 1;
    return 0;
}
