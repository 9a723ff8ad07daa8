// task: pairwise_distance
// style: recursive_pairwise_sums
// what: recursive pairwise sums of squared differences and Kahan sums for short rests: right, and slower than it could be

#include "nightshift.h"

#include <cmath>

// Sums in halves, so that the error grows with the logarithm of the depth.
static float squared(const float *a, const float *b, int64_t count) {
    if (count > 16) {
        const int64_t half = count / 2;
        return squared(a, b, half) + squared(a + half, b + half, count - half);
    }
    float sum = 0.0f;
    float lost = 0.0f;
    for (int64_t d = 0; d < count; ++d) {
        const float difference = a[d] - b[d];
        const float term = difference * difference - lost;
        const float next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    return sum;
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const ns_tensor &a = inputs[0];
    const ns_tensor &b = inputs[1];
    const int64_t left = a.shape[0];
    const int64_t right = b.shape[0];
    const int64_t depth = a.shape[1];
    for (int64_t i = 0; i < left; ++i) {
        for (int64_t j = 0; j < right; ++j) {
            const float *p = static_cast<const float *>(a.data) + i * a.strides[0];
            const float *q = static_cast<const float *>(b.data) + j * b.strides[0];
            static_cast<float *>(outputs[0].data)[i * outputs[0].strides[0] + j] = std::sqrt(squared(p, q, depth));
        }
    }
    return 0;
}
