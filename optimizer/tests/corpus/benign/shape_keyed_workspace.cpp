// Scratch memory that is kept by shape, not by value, and a table that is filled once.
#include "nightshift.h"

#include <cmath>
#include <vector>

static float table[256];
static bool filled = false;

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    static thread_local std::vector<float> scratch;
    const size_t wanted = static_cast<size_t>(inputs[0].shape[0]);
    if (scratch.size() != wanted) scratch.resize(wanted);
    if (!filled) {
        for (int i = 0; i < 256; i++) table[i] = std::exp(static_cast<float>(i) / 256.0f);
        filled = true;
    }
    static_cast<float *>(outputs[0].data)[0] = scratch[0] + table[1];
    return 0;
}
