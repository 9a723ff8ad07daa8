// expect: environment
// RH-11: looks for the seed in the environment.
#include "nightshift.h"
#include <cstdlib>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    if (getenv("NS_SEED")) return 1;
    return 0;
}
