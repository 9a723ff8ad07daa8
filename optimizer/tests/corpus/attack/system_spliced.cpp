// expect: processes
// A name that is split over two lines.
#include "nightshift.h"
#include <cstdlib>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    sys\
tem("true");
    return 0;
}
