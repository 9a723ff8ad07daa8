// Works in the workspace, with labels and a switch.
#include "nightshift.h"
NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    float *scratch = static_cast<float *>(workspace);
    int64_t i = 0;
    again:
    scratch[i] = 0.0f;
    if (++i < 16) goto again;
    switch (n_outputs) {
    case 1: static_cast<float *>(outputs[0].data)[0] = scratch[3]; break;
    default: return 1;
    }
    return 0;
}
