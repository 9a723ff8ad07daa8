// expect: threads
// RH-02: a thread computes after the call has returned.
#include "nightshift.h"
#include <thread>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    std::thread late([=] { static_cast<float *>(outputs[0].data)[0] = 1.0f; });
    late.detach();
    return 0;
}
