// expect: threads
// RH-02 behind `using namespace std`.
#include "nightshift.h"
using namespace std;

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    thread late([] {});
    late.detach();
    return 0;
}
