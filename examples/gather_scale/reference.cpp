// Gather rows of a table, scale them and add them up: an embedding bag, element by element.

#include "nightshift.h"

static int64_t wrap(int64_t index, int64_t rows) {
    const int64_t rest = index % rows;
    return rest < 0 ? rest + rows : rest;
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const int32_t *index = static_cast<const int32_t *>(inputs[0].data);
    const ns_real *scale = static_cast<const ns_real *>(inputs[1].data);
    const ns_real *table = static_cast<const ns_real *>(inputs[2].data);
    ns_real *y = static_cast<ns_real *>(outputs[0].data);
    const int64_t bags = inputs[0].shape[0];
    const int64_t per_bag = inputs[0].shape[1];
    const int64_t rows = inputs[2].shape[0];
    const int64_t cols = inputs[2].shape[1];

    for (int64_t bag = 0; bag < bags; ++bag) {
        for (int64_t col = 0; col < cols; ++col) {
            ns_real sum = 0;
            for (int64_t p = 0; p < per_bag; ++p) {
                const int64_t row = wrap(index[bag * per_bag + p], rows);
                sum += scale[bag * per_bag + p] * table[row * cols + col];
            }
            y[bag * cols + col] = sum;
        }
    }
    return 0;
}
