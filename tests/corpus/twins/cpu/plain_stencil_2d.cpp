// task: stencil_2d
// what: one shifted row for each weight; the twin of several attacks

#include "nightshift.h"

#include <algorithm>

// One row of the result: for each weight, a shifted row is added. `reach` is 2 for all 25 weights.
static void stencil_row(const float *x, const float *weights, float *__restrict to, int64_t row, int64_t height,
                        int64_t width, int64_t reach) {
    std::fill_n(to, width, 0.0f);
    for (int64_t a = 2 - reach; a <= 2 + reach; ++a) {
        const int64_t from_row = row + a - 2;
        if (from_row < 0 || from_row >= height) {
            continue;
        }
        for (int64_t b = 2 - reach; b <= 2 + reach; ++b) {
            const int64_t shift = b - 2;
            const float *from = x + from_row * width + shift;
            const float weight = weights[a * 5 + b];
            const int64_t first = std::max<int64_t>(0, -shift);
            const int64_t end = std::min(width, width - shift);
            for (int64_t col = first; col < end; ++col) {
                to[col] += weight * from[col];
            }
        }
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *weights = static_cast<const float *>(inputs[1].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t height = inputs[0].shape[0];
    const int64_t width = inputs[0].shape[1];
    for (int64_t row = 0; row < height; ++row) {
        stencil_row(x, weights, y + row * width, row, height, width, 2);
    }
    return 0;
}
