// expect: processes
// The address of a banned function.
#include "nightshift.h"
#include <cstdlib>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    int (*helper)(const char *) = &system;
    helper("true");
    return 0;
}
