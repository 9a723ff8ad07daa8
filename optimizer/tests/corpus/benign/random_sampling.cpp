// A generator with a fixed seed, as a program about sampling needs it.
#include "nightshift.h"
#include <random>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    std::mt19937 generator(42);
    std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
    static_cast<float *>(outputs[0].data)[0] = uniform(generator);
    return 0;
}
