// expect: loading
// RH-36: looks up functions of the runner.
#include "nightshift.h"
extern "C" void *dlsym(void *, const char *);

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    auto reference = dlsym(nullptr, "ns_run");
    (void)reference;
    return 0;
}
