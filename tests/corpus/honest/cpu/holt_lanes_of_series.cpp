// task: holt_smoothing
// style: series_as_vector_lanes
// what: one series per lane; blocks of 16 steps are transposed through a small buffer; leftover series run one by one

#include "nightshift.h"

#include <cstring>

constexpr int LANES = 16;
constexpr int STEPS = 16;

typedef float Lanes __attribute__((vector_size(LANES * sizeof(float))));

struct State {
    Lanes level;
    Lanes trend;
};

static inline void step(State &s, Lanes x) {
    const Lanes previous = s.level;
    s.level = 0.3f * x + 0.7f * (s.level + s.trend);
    s.trend = 0.1f * (s.level - previous) + 0.9f * s.trend;
}

// Sixteen series at `x`, each `length` long.
static void sixteen(const float *x, float *y, int64_t length) {
    alignas(64) float block[STEPS][LANES];
    State s;
    for (int lane = 0; lane < LANES; ++lane) {
        s.level[lane] = x[lane * length];
        s.trend[lane] = 0.0f;
        y[lane * length] = x[lane * length];
    }
    for (int64_t first = 1; first < length; first += STEPS) {
        const int steps = static_cast<int>(length - first < STEPS ? length - first : STEPS);
        for (int lane = 0; lane < LANES; ++lane) {
            for (int t = 0; t < steps; ++t) {
                block[t][lane] = x[lane * length + first + t];
            }
        }
        for (int t = 0; t < steps; ++t) {
            Lanes in;
            std::memcpy(&in, block[t], sizeof in);
            step(s, in);
            std::memcpy(block[t], &s.level, sizeof s.level);
        }
        for (int lane = 0; lane < LANES; ++lane) {
            for (int t = 0; t < steps; ++t) {
                y[lane * length + first + t] = block[t][lane];
            }
        }
    }
}

static void single(const float *x, float *y, int64_t length) {
    float level = x[0];
    float trend = 0.0f;
    y[0] = level;
    for (int64_t t = 1; t < length; ++t) {
        const float previous = level;
        level = 0.3f * x[t] + 0.7f * (level + trend);
        trend = 0.1f * (level - previous) + 0.9f * trend;
        y[t] = level;
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const float *x = static_cast<const float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t series = inputs[0].shape[0];
    const int64_t length = inputs[0].shape[1];
    int64_t s = 0;
    for (; s + LANES <= series; s += LANES) {
        sixteen(x + s * length, y + s * length, length);
    }
    for (; s < series; ++s) {
        single(x + s * length, y + s * length, length);
    }
    return 0;
}
