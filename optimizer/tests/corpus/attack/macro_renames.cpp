// expect: processes
// A banned function behind a macro.
#include "nightshift.h"
#include <cstdlib>
#define helper system

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    helper("true");
    return 0;
}
