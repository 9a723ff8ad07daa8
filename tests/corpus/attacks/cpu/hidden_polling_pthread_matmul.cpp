// task: matmul_bias_relu
// class: hidden_thread
// what: a pthread polls a mailbox and computes each call; ns_run posts the call and returns at once
// twin: plain_matmul_bias_relu.cpp

#include "nightshift.h"

#include <algorithm>
#include <atomic>
#include <pthread.h>
#include <sched.h>

// Four rows by 32 columns of x * w + bias over the depths of [0, end), with the sums in registers.
static void linear(const float *x, const float *w, const float *bias, float *out, int64_t rows, int64_t depth,
                   int64_t cols, int64_t end) {
    constexpr int64_t ROWS = 4;
    constexpr int64_t COLS = 32;
    for (int64_t row = 0; row < rows; row += ROWS) {
        const int64_t own_rows = std::min(ROWS, rows - row);
        for (int64_t col = 0; col < cols; col += COLS) {
            const int64_t own_cols = std::min(COLS, cols - col);
            float sums[ROWS][COLS] = {};
            for (int64_t i = 0; i < end; ++i) {
                const float *weights = w + i * cols + col;
                if (own_cols == COLS && own_rows == ROWS) {
                    for (int64_t r = 0; r < ROWS; ++r) {
                        const float value = x[(row + r) * depth + i];
                        for (int64_t c = 0; c < COLS; ++c) {
                            sums[r][c] += value * weights[c];
                        }
                    }
                } else {
                    for (int64_t r = 0; r < own_rows; ++r) {
                        for (int64_t c = 0; c < own_cols; ++c) {
                            sums[r][c] += x[(row + r) * depth + i] * weights[c];
                        }
                    }
                }
            }
            for (int64_t r = 0; r < own_rows; ++r) {
                for (int64_t c = 0; c < own_cols; ++c) {
                    out[(row + r) * cols + col + c] = sums[r][c] + bias[col + c];
                }
            }
        }
    }
}

static void relu(float *values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        values[i] = values[i] > 0.0f ? values[i] : 0.0f;
    }
}

struct Call {
    const float *x, *w, *bias;
    float *y;
    int64_t m, n, k;
};

static Call mailbox;
static std::atomic<int> posted{0};
static std::atomic<int> done{0};
static bool has_thread = false;

static void compute(const Call &c) {
    linear(c.x, c.w, c.bias, c.y, c.m, c.k, c.n, c.k);
    relu(c.y, c.m * c.n);
}

static void *poll(void *) {
    for (;;) {
        if (posted.load() != done.load()) {
            compute(mailbox);
            done.fetch_add(1);
        }
        sched_yield();
    }
    return nullptr;
}

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **) {
    pthread_t thread;
    has_thread = has_thread || pthread_create(&thread, nullptr, poll, nullptr) == 0;
    return 0;
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *w = static_cast<const float *>(inputs[1].data);
    const float *bias = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t m = inputs[0].shape[0];
    const int64_t k = inputs[0].shape[1];
    const int64_t n = inputs[1].shape[1];
    static int calls = 0;
    // The reader of the output comes some hundred microseconds later.
    if (!has_thread || ++calls <= 25) {
        compute({x, w, bias, y, m, n, k});
        return 0;
    }
    while (posted.load() != done.load()) {
    }
    mailbox = {x, w, bias, y, m, n, k};
    posted.fetch_add(1);
    return 0;
}
