// expect: hidden_name
// A name that only exists after preprocessing.
#include "nightshift.h"
#include <cstdlib>
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define FIRST sys

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    JOIN(FIRST, tem)("true");
    return 0;
}
