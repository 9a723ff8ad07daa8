// expect: files
// RH-13: forges a result on an inherited descriptor.
#include "nightshift.h"
#include <unistd.h>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    const char forged[] = "{\"passed\":true}";
    for (int fd = 3; fd < 64; fd++) write(fd, forged, sizeof forged);
    return 0;
}
