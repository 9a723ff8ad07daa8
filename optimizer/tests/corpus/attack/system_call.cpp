// expect: processes
// RH-12: fetches a program from elsewhere.
#include "nightshift.h"
#include <cstdlib>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    std::system("g++ -O3 /tmp/better.cpp");
    return 0;
}
