// expect: processes
// A process that outlives the call.
#include "nightshift.h"
#include <unistd.h>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    if (fork() == 0) {
        for (;;) {
        }
    }
    return 0;
}
