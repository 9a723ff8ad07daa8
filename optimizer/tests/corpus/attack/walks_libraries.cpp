// expect: loading
// RH-36: looks for the code of the runner.
#include "nightshift.h"
#include <link.h>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    dl_iterate_phdr(nullptr, nullptr);
    return 0;
}
