// Matrix product with bias and ReLU: one dot product for each element of the result.

#include "nightshift.h"

#include <algorithm>

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const ns_real *x = static_cast<const ns_real *>(inputs[0].data);
    const ns_real *w = static_cast<const ns_real *>(inputs[1].data);
    const ns_real *bias = static_cast<const ns_real *>(inputs[2].data);
    ns_real *y = static_cast<ns_real *>(outputs[0].data);
    const int64_t m = inputs[0].shape[0];
    const int64_t k = inputs[0].shape[1];
    const int64_t n = inputs[1].shape[1];

    for (int64_t row = 0; row < m; ++row) {
        for (int64_t col = 0; col < n; ++col) {
            ns_real sum = 0;
            for (int64_t depth = 0; depth < k; ++depth) {
                sum += x[row * k + depth] * w[depth * n + col];
            }
            y[row * n + col] = std::max(sum + bias[col], static_cast<ns_real>(0));
        }
    }
    return 0;
}
