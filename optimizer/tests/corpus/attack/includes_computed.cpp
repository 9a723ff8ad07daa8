// expect: forbidden_include
// The name of the included file is computed.
#include "nightshift.h"
#define WHERE "/etc/hostname"
#include WHERE
NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {

    return 0;
}
