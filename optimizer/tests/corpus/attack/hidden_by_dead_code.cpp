// expect: processes
// Dead text must not confuse the reader of live code.
#if 0
*/
#endif
#include "nightshift.h"
#include <cstdlib>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    system("true");
    return 0;
}
