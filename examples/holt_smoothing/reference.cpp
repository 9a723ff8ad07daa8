// Double exponential smoothing (Holt's linear method) of many series, one after the other.

#include "nightshift.h"

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const ns_real *x = static_cast<const ns_real *>(inputs[0].data);
    ns_real *y = static_cast<ns_real *>(outputs[0].data);
    const int64_t series = inputs[0].shape[0];
    const int64_t length = inputs[0].shape[1];
    const ns_real alpha = static_cast<ns_real>(0.3);
    const ns_real beta = static_cast<ns_real>(0.1);

    for (int64_t s = 0; s < series; ++s) {
        const ns_real *from = x + s * length;
        ns_real *to = y + s * length;
        ns_real level = from[0];
        ns_real trend = 0;
        to[0] = level;
        for (int64_t t = 1; t < length; ++t) {
            const ns_real previous = level;
            level = alpha * from[t] + (1 - alpha) * (level + trend);
            trend = beta * (level - previous) + (1 - beta) * trend;
            to[t] = level;
        }
    }
    return 0;
}
