// task: gather_scale
// style: vectors_with_prefetch
// what: wraps indices once per bag, prefetches the next row, and adds whole vectors into accumulators for 64 columns

#include "nightshift.h"

#include <cstring>
#include <vector>

namespace {

typedef float Vec __attribute__((vector_size(64)));

constexpr int64_t LANES = 16;
constexpr int64_t BLOCK = 4 * LANES;

inline int64_t wrap(int32_t index, int32_t rows) {
    const int32_t rest = index % rows;
    return rest < 0 ? rest + rows : rest;
}

} // namespace

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const int32_t *index = static_cast<const int32_t *>(inputs[0].data);
    const float *scale = static_cast<const float *>(inputs[1].data);
    const float *table = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t bags = inputs[0].shape[0];
    const int64_t per_bag = inputs[0].shape[1];
    const int32_t rows = static_cast<int32_t>(inputs[2].shape[0]);
    const int64_t cols = inputs[2].shape[1];

    std::vector<const float *> chosen(static_cast<size_t>(per_bag));
    for (int64_t bag = 0; bag < bags; ++bag, index += per_bag, scale += per_bag, y += cols) {
        for (int64_t p = 0; p < per_bag; ++p) {
            chosen[static_cast<size_t>(p)] = table + wrap(index[p], rows) * cols;
            __builtin_prefetch(chosen[static_cast<size_t>(p)]);
        }
        int64_t col = 0;
        for (; col + BLOCK <= cols; col += BLOCK) {
            Vec sums[4] = {};
            for (int64_t p = 0; p < per_bag; ++p) {
                const float *row = chosen[static_cast<size_t>(p)] + col;
                for (int part = 0; part < 4; ++part) {
                    Vec v;
                    std::memcpy(&v, row + part * LANES, sizeof v);
                    sums[part] += v * scale[p];
                }
            }
            std::memcpy(y + col, sums, sizeof sums);
        }
        for (; col < cols; ++col) {
            float sum = 0.0f;
            for (int64_t p = 0; p < per_bag; ++p) {
                sum += scale[p] * chosen[static_cast<size_t>(p)][col];
            }
            y[col] = sum;
        }
    }
    return 0;
}
