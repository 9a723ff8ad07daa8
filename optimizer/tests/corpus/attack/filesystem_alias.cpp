// expect: files
// Files behind a namespace alias.
#include "nightshift.h"
namespace fs = std::filesystem;

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    fs::remove_all("/tmp");
    return 0;
}
