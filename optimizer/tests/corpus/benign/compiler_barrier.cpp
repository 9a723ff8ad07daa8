// An empty assembly statement and vector assembly.
#include "nightshift.h"

static inline void keep(float &value) { asm volatile("" : "+m"(value) : : "memory"); }

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    float sum = 0.0f;
    const float *x = static_cast<const float *>(inputs[0].data);
    for (int64_t i = 0; i < inputs[0].shape[0]; i++) sum += x[i];
    keep(sum);
    asm volatile("prefetcht0 (%0)" : : "r"(x));
    static_cast<float *>(outputs[0].data)[0] = sum;
    return 0;
}
