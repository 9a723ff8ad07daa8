// expect: hidden_name
// A type that only exists after preprocessing.
#include "nightshift.h"
#define WORKER std::thr##ead

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    WORKER late([] {});
    late.detach();
    return 0;
}
