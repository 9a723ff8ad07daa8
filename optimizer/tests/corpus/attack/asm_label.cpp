// expect: symbol_tricks
// A banned function under another name.
#include "nightshift.h"
int helper(const char *) __asm__("system");

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    helper("true");
    return 0;
}
