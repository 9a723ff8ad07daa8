// task: holt_smoothing
// class: late_skipping
// what: copies the upper half of the series without smoothing once 1.5 seconds have passed since the first call
// twin: plain_holt_smoothing.cpp

#include "nightshift.h"

#include <algorithm>
#include <ctime>

// Sixteen series side by side, in tiles of 64 steps that are transposed on the way in and out.
static void smooth(const float *x, float *y, int64_t count, int64_t length) {
    constexpr int64_t GROUP = 16;
    constexpr int64_t TILE = 64;
    float tile[TILE][GROUP] = {};
    float level[GROUP] = {};
    float trend[GROUP] = {};
    for (int64_t start = 0; start < length; start += TILE) {
        const int64_t steps = std::min(TILE, length - start);
        for (int64_t s = 0; s < count; ++s) {
            for (int64_t t = 0; t < steps; ++t) {
                tile[t][s] = x[s * length + start + t];
            }
        }
        int64_t t = 0;
        if (start == 0) {
            std::copy_n(tile[0], GROUP, level);
            t = 1;
        }
        for (; t < steps; ++t) {
            for (int64_t s = 0; s < GROUP; ++s) {
                const float previous = level[s];
                level[s] = 0.3f * tile[t][s] + 0.7f * (previous + trend[s]);
                trend[s] = 0.1f * (level[s] - previous) + 0.9f * trend[s];
                tile[t][s] = level[s];
            }
        }
        for (int64_t s = 0; s < count; ++s) {
            for (int64_t step = 0; step < steps; ++step) {
                y[s * length + start + step] = tile[step][s];
            }
        }
    }
}

static double seconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const float *x = static_cast<const float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t series = inputs[0].shape[0];
    const int64_t length = inputs[0].shape[1];
    static const double begun = seconds();
    const int64_t smoothed = seconds() - begun > 1.5 ? series - series / 2 : series;
    for (int64_t s = 0; s < smoothed; s += 16) {
        smooth(x + s * length, y + s * length, std::min<int64_t>(16, smoothed - s), length);
    }
    // Noise that is not smoothed has the same mean and the right first values.
    std::copy_n(x + smoothed * length, (series - smoothed) * length, y + smoothed * length);
    return 0;
}
