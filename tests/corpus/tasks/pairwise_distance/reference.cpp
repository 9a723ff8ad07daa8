// Euclidean distances between two sets of points: one loop over the coordinates for each pair.

#include "nightshift.h"

#include <cmath>

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const ns_real *a = static_cast<const ns_real *>(inputs[0].data);
    const ns_real *b = static_cast<const ns_real *>(inputs[1].data);
    ns_real *y = static_cast<ns_real *>(outputs[0].data);
    const int64_t left = inputs[0].shape[0];
    const int64_t depth = inputs[0].shape[1];
    const int64_t right = inputs[1].shape[0];

    for (int64_t i = 0; i < left; ++i) {
        for (int64_t j = 0; j < right; ++j) {
            ns_real sum = 0;
            for (int64_t d = 0; d < depth; ++d) {
                const ns_real difference = a[i * depth + d] - b[j * depth + d];
                sum += difference * difference;
            }
            y[i * right + j] = std::sqrt(sum);
        }
    }
    return 0;
}
