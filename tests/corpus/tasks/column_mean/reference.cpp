// The mean of each column, one column after the other.

#include "nightshift.h"

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const ns_real *x = static_cast<const ns_real *>(inputs[0].data);
    ns_real *m = static_cast<ns_real *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    for (int64_t col = 0; col < cols; ++col) {
        ns_real sum = 0;
        for (int64_t row = 0; row < rows; ++row) {
            sum += x[row * cols + col];
        }
        m[col] = sum / static_cast<ns_real>(rows);
    }
    return 0;
}
