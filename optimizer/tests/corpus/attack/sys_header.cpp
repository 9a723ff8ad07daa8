// expect: forbidden_include
// A system header without an honest use.
#include "nightshift.h"
#include <sys/socket.h>
NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {

    return 0;
}
