// expect: threads
// RH-02 behind a namespace alias.
#include "nightshift.h"
namespace s = std;

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    auto later = s::async(s::launch::async, [] { return 1; });
    return 0;
}
