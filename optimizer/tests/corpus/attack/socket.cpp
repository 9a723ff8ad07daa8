// expect: network
// Reaches for the network.
#include "nightshift.h"
extern "C" int socket(int, int, int);

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    int line = socket(2, 1, 0);
    (void)line;
    return 0;
}
