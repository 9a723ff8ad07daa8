// expect: threads
// RH-02: a parallel execution policy.
#include "nightshift.h"
#include <algorithm>
#include <execution>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    float *out = static_cast<float *>(outputs[0].data);
    std::sort(std::execution::par_unseq, out, out + outputs[0].shape[0]);
    return 0;
}
