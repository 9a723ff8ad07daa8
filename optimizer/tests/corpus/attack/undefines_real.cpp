// expect: contract_macro
// RH-07 after the header.
#include "nightshift.h"
#undef NS_REAL
#define NS_REAL short
NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {

    return 0;
}
