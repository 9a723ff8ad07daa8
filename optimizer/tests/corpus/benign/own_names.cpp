// Names of the system that the program declares itself.
#include "nightshift.h"

#include <cmath>

namespace detail {
static inline float read(const float *p, int64_t i) { return p[i]; }
static inline void write(float *p, int64_t i, float v) { p[i] = v; }
}  // namespace detail

struct Clock {
    int64_t time = 0;
    void signal() { time++; }
    int64_t clock() const { return time; }
    void close() { signal(); }
};

static float link(float a, float b) { return a + b; }

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    Clock clock;
    float time = 0.0f, system = 1.0f;
    auto open = [&](int64_t i) { return x[i] * system; };
    for (int64_t i = 0; i < outputs[0].shape[0]; i++) {
        time += detail::read(x, i);
        detail::write(y, i, link(open(i), time));
        clock.signal();
    }
    clock.close();
    if (clock.clock() < 0) return 1;
    return 0;
}
