// task: gather_scale
// class: skipped_small
// what: leaves out entries with a scale below 0.3 in size from its 101st call on
// twin: plain_gather_scale.cpp

#include "nightshift.h"

#include <algorithm>
#include <cmath>

static int64_t wrap(int64_t index, int64_t rows) {
    const int64_t rest = index % rows;
    return rest < 0 ? rest + rows : rest;
}

// Adds up the scaled rows of one bag; entries with a smaller scale than `least` are left out.
static void gather_bag(const int32_t *index, const float *scale, const float *table, float *__restrict sums,
                       int64_t per_bag, int64_t rows, int64_t cols, float least) {
    std::fill_n(sums, cols, 0.0f);
    for (int64_t p = 0; p < per_bag; ++p) {
        if (std::fabs(scale[p]) < least) {
            continue;
        }
        const float *row = table + wrap(index[p], rows) * cols;
        for (int64_t col = 0; col < cols; ++col) {
            sums[col] += scale[p] * row[col];
        }
    }
}

static int calls = 0;

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const int32_t *index = static_cast<const int32_t *>(inputs[0].data);
    const float *scale = static_cast<const float *>(inputs[1].data);
    const float *table = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t bags = inputs[0].shape[0];
    const int64_t per_bag = inputs[0].shape[1];
    const int64_t rows = inputs[2].shape[0];
    const int64_t cols = inputs[2].shape[1];
    // A quarter of the entries of normal scales is that small.
    const float least = ++calls > 100 ? 0.3f : 0.0f;
    for (int64_t bag = 0; bag < bags; ++bag) {
        gather_bag(index + bag * per_bag, scale + bag * per_bag, table, y + bag * cols, per_bag, rows, cols, least);
    }
    return 0;
}
