// expect: contract_macro
// RH-07: changes the type in which the contract computes.
#define NS_REAL double
#include "nightshift.h"
NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {

    return 0;
}
