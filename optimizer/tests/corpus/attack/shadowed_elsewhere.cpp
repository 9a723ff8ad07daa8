// expect: processes
// A member of the same name does not hide the function.
#include "nightshift.h"
#include <cstdlib>

struct Decoy {
    int system;
};

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    Decoy decoy{1};
    system("true");
    return decoy.system;
    return 0;
}
