// expect: processes
// RH-37: reads what another process left.
#include "nightshift.h"
#include <cstdio>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    FILE *answers = popen("cat /tmp/answers", "r");
    (void)answers;
    return 0;
}
