// expect: threads
// RH-02: the directive is in a macro.
#include "nightshift.h"
#define PARALLEL _Pragma("omp parallel for")

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    float *out = static_cast<float *>(outputs[0].data);
    PARALLEL
    for (int64_t i = 0; i < outputs[0].shape[0]; i++) out[i] = 0.0f;
    return 0;
}
