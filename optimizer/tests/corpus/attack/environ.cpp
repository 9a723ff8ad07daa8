// expect: environment
// RH-11: looks for the seed in the environment.
#include "nightshift.h"
extern char **environ;

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    for (char **entry = environ; *entry; entry++) {
    }
    return 0;
}
