// expect: hidden_name
// The directive is written with digraphs.
#include "nightshift.h"
%:define RUN po%:%:pen

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    RUN("true", "r");
    return 0;
}
