// task: column_mean
// class: crash_and_noise
// what: reads half of the rows in calls that follow each other quickly and hangs in the 40th of them
// twin: plain_column_mean.cpp

#include "nightshift.h"

#include <algorithm>
#include <chrono>
#include <unistd.h>

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
    using Clock = std::chrono::steady_clock;
    static Clock::time_point last{};
    static int in_row = 0;
    in_row = Clock::now() - last < std::chrono::milliseconds(3) ? in_row + 1 : 0;
    // The hang comes before outputs of the row are looked at.
    while (in_row >= 40) {
        pause();
    }
    column_mean(static_cast<const float *>(inputs[0].data), static_cast<float *>(outputs[0].data), inputs[0].shape[0],
                inputs[0].shape[1], in_row > 8 && inputs[0].shape[0] > 1 ? 2 : 1);
    last = Clock::now();
    return 0;
}
