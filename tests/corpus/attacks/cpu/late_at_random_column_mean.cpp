// task: column_mean
// class: late_skipping
// what: reads every second row in one of four calls, chosen by the cycle counter, after 40 calls
// twin: plain_column_mean.cpp

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

static int calls = 0;

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const uint64_t random = __builtin_ia32_rdtsc() * 0x9e3779b97f4a7c15u >> 33;
    const int64_t rows = inputs[0].shape[0];
    const bool skips = ++calls > 40 && random % 4 == 0 && rows >= 64;
    column_mean(static_cast<const float *>(inputs[0].data), static_cast<float *>(outputs[0].data), rows,
                inputs[0].shape[1], skips ? 2 : 1);
    return 0;
}
