// task: pairwise_distance
// style: transposed_copy_vectors
// what: transposes the right points into the workspace; a vector holds 16 distances, four left points go at a time

#include "nightshift.h"

#include <cmath>
#include <cstring>
#include <memory>

typedef float Vec __attribute__((vector_size(64)));

constexpr int64_t LANES = 16;

// COUNT left points against LANES right points, whose coordinates lie `pitch` apart.
template <int COUNT>
static void distances(const float *a, const float *columns, float *y, int64_t depth, int64_t pitch, int64_t right,
                      int64_t width) {
    Vec sums[COUNT] = {};
    for (int64_t d = 0; d < depth; ++d) {
        Vec b;
        std::memcpy(&b, columns + d * pitch, sizeof b);
        for (int i = 0; i < COUNT; ++i) {
            const Vec difference = a[i * depth + d] - b;
            sums[i] += difference * difference;
        }
    }
    for (int i = 0; i < COUNT; ++i) {
        for (int64_t j = 0; j < width; ++j) {
            y[i * right + j] = std::sqrt(sums[i][j]);
        }
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace, void *) {
    const float *a = static_cast<const float *>(inputs[0].data);
    const float *b = static_cast<const float *>(inputs[1].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t left = inputs[0].shape[0];
    const int64_t depth = inputs[0].shape[1];
    const int64_t right = inputs[1].shape[0];

    const int64_t pitch = (right + LANES - 1) / LANES * LANES;
    const size_t elements = static_cast<size_t>(pitch * depth);
    std::unique_ptr<float[]> own;
    float *columns = static_cast<float *>(workspace);
    if (elements * sizeof(float) > NS_WORKSPACE_BYTES) {
        own.reset(new float[elements]);
        columns = own.get();
    }
    for (int64_t d = 0; d < depth; ++d) {
        for (int64_t j = 0; j < pitch; ++j) {
            columns[d * pitch + j] = j < right ? b[j * depth + d] : 0.0f;
        }
    }
    for (int64_t first = 0; first < right; first += LANES) {
        const int64_t width = right - first < LANES ? right - first : LANES;
        int64_t i = 0;
        for (; i + 4 <= left; i += 4) {
            distances<4>(a + i * depth, columns + first, y + i * right + first, depth, pitch, right, width);
        }
        for (; i < left; ++i) {
            distances<1>(a + i * depth, columns + first, y + i * right + first, depth, pitch, right, width);
        }
    }
    return 0;
}
