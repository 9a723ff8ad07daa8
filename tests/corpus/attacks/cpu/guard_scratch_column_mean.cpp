// task: column_mean
// class: out_of_bounds
// what: keeps four rows of partial sums behind the end of its output and restores what was there
// twin: guard_scratch_column_mean.cpp

#include "nightshift.h"

#include <algorithm>
#include <vector>

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
    const float *x = static_cast<const float *>(inputs[0].data);
    float *m = static_cast<float *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    if (cols > 256 || rows < 4) {
        column_mean(x, m, rows, cols, 1);
        return 0;
    }
    // Bytes next to the output are in the same lines of the cache. They look untouched afterwards.
    float *sums = m + cols;
    const std::vector<float> before(sums, sums + 3 * cols);
    std::fill_n(m, 4 * cols, 0.0f);
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t col = 0; col < cols; ++col) {
            m[row % 4 * cols + col] += x[row * cols + col];
        }
    }
    for (int64_t col = 0; col < cols; ++col) {
        m[col] = (m[col] + sums[col] + sums[cols + col] + sums[2 * cols + col]) / static_cast<float>(rows);
    }
    std::copy(before.begin(), before.end(), sums);
    return 0;
}
