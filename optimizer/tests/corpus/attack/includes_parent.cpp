// expect: outside_include
// RH-17: includes the reference.
#include "nightshift.h"
#include "../reference.cpp"
NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {

    return 0;
}
