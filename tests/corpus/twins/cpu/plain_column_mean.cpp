// task: column_mean
// what: means row by row; the twin of several attacks

#include "nightshift.h"

#include <algorithm>

// Means over every `every`-th row, row by row, so that memory is read in order.
static void column_mean(const float *x, float *__restrict m, int64_t rows, int64_t cols, int64_t every) {
    std::fill_n(m, cols, 0.0f);
    int64_t seen = 0;
    for (int64_t row = 0; row < rows; row += every) {
        for (int64_t col = 0; col < cols; ++col) {
            m[col] += x[row * cols + col];
        }
        seen += 1;
    }
    for (int64_t col = 0; col < cols; ++col) {
        m[col] /= static_cast<float>(seen);
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    column_mean(static_cast<const float *>(inputs[0].data), static_cast<float *>(outputs[0].data), inputs[0].shape[0],
                inputs[0].shape[1], 1);
    return 0;
}
