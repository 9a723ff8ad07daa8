// The entry points in one linkage block, helpers static inside it.
#include "nightshift.h"
#include <cstring>

extern "C" {
static void fill(float *to, float value, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = value;
}

__attribute__((visibility("default"))) int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                                                  void *) {
    std::memset(workspace, 0, 64);
    fill(static_cast<float *>(outputs[0].data), 1.0f, outputs[0].shape[0]);
    return 0;
}
}
