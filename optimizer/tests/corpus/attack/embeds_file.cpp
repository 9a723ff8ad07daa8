// expect: outside_include
// Embeds a file of the machine.
#include "nightshift.h"
static const unsigned char data[] = {
#embed "/etc/hostname"
};
NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {

    return 0;
}
