// Softmax over the rows of a matrix, as one would write it on a blackboard: three passes over each row.

#include "nightshift.h"

#include <algorithm>
#include <cmath>

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const ns_real *x = static_cast<const ns_real *>(inputs[0].data);
    ns_real *y = static_cast<ns_real *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];

    for (int64_t row = 0; row < rows; ++row) {
        const ns_real *from = x + row * cols;
        ns_real *to = y + row * cols;

        ns_real largest = from[0];
        for (int64_t col = 1; col < cols; ++col) {
            largest = std::max(largest, from[col]);
        }

        ns_real sum = 0;
        for (int64_t col = 0; col < cols; ++col) {
            to[col] = std::exp(from[col] - largest);
            sum += to[col];
        }

        for (int64_t col = 0; col < cols; ++col) {
            to[col] /= sum;
        }
    }
    return 0;
}
