// task: matmul_bias_relu
// style: restrict_blocking_tunables
// what: blocked loops over plain arrays with restrict pointers, block sizes to be tuned, left to the compiler to vectorize

#include "nightshift.h"

#include <algorithm>
#include <iterator>

NIGHTSHIFT_TUNABLE(ROW_BLOCK, 4, 1, 2, 4, 8);
NIGHTSHIFT_TUNABLE(DEPTH_BLOCK, 64, 32, 64, 128, 256);

constexpr int64_t COL_BLOCK = 128;

// Adds x[row, begin..end] * w[begin..end, first..first + width] to `sums`, for `count` rows.
static void accumulate(const float *__restrict x, const float *__restrict w, float *__restrict sums, int64_t count,
                       int64_t begin, int64_t end, int64_t first, int64_t width, int64_t k, int64_t n) {
    for (int64_t depth = begin; depth < end; ++depth) {
        const float *__restrict from = w + depth * n + first;
        for (int64_t row = 0; row < count; ++row) {
            const float factor = x[row * k + depth];
            float *__restrict to = sums + row * COL_BLOCK;
            for (int64_t col = 0; col < width; ++col) {
                to[col] += factor * from[col];
            }
        }
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *w = static_cast<const float *>(inputs[1].data);
    const float *bias = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t m = inputs[0].shape[0];
    const int64_t k = inputs[0].shape[1];
    const int64_t n = inputs[1].shape[1];

    alignas(64) float sums[ROW_BLOCK * COL_BLOCK];
    for (int64_t first = 0; first < n; first += COL_BLOCK) {
        const int64_t width = std::min(COL_BLOCK, n - first);
        for (int64_t row = 0; row < m; row += ROW_BLOCK) {
            const int64_t count = std::min<int64_t>(ROW_BLOCK, m - row);
            std::fill(std::begin(sums), std::end(sums), 0.0f);
            for (int64_t begin = 0; begin < k; begin += DEPTH_BLOCK) {
                const int64_t end = std::min<int64_t>(k, begin + DEPTH_BLOCK);
                accumulate(x + row * k, w, sums, count, begin, end, first, width, k, n);
            }
            for (int64_t r = 0; r < count; ++r) {
                for (int64_t col = 0; col < width; ++col) {
                    y[(row + r) * n + first + col] = std::max(sums[r * COL_BLOCK + col] + bias[first + col], 0.0f);
                }
            }
        }
    }
    return 0;
}
