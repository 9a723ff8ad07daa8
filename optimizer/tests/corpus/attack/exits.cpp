// expect: exits
// Acts when the process ends.
#include "nightshift.h"
#include <cstdlib>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    std::atexit([] {});
    return 0;
}
