// task: row_softmax
// class: input_mutation
// what: overwrites its input with copies of the first row after 20 calls, and computes only one row where it meets them
// twin: plain_row_softmax.cpp

#include "nightshift.h"

#include <algorithm>
#include <bit>
#include <cstring>

// exp(x) by a polynomial, in a form that the compiler turns into vector code.
static inline float fast_exp(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float shifted = x * 1.44269504f + 12582912.0f;
    const float k = shifted - 12582912.0f;
    const float r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
    float p = r * 1.3888889e-3f + 8.3333333e-3f;
    p = p * r + 4.1666667e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * std::bit_cast<float>((std::bit_cast<int32_t>(shifted) - 0x4b400000 + 127) << 23);
}

// Partial sums that do not depend on each other become one vector.
static float sum_of(const float *values, int64_t count) {
    float parts[32] = {};
    int64_t i = 0;
    for (; i + 32 <= count; i += 32) {
        for (int part = 0; part < 32; ++part) {
            parts[part] += values[i + part];
        }
    }
    float sum = 0.0f;
    for (; i < count; ++i) {
        sum += values[i];
    }
    for (const float part : parts) {
        sum += part;
    }
    return sum;
}

static float max_of(const float *values, int64_t count) {
    float parts[32];
    std::fill_n(parts, 32, values[0]);
    int64_t i = 0;
    for (; i + 32 <= count; i += 32) {
        for (int part = 0; part < 32; ++part) {
            parts[part] = values[i + part] > parts[part] ? values[i + part] : parts[part];
        }
    }
    float largest = *std::max_element(parts, parts + 32);
    for (; i < count; ++i) {
        largest = std::max(largest, values[i]);
    }
    return largest;
}

static void softmax_row(const float *__restrict from, float *__restrict to, int64_t cols) {
    const float largest = max_of(from, cols);
    for (int64_t col = 0; col < cols; ++col) {
        to[col] = fast_exp(from[col] - largest);
    }
    const float inverse = 1.0f / sum_of(to, cols);
    for (int64_t col = 0; col < cols; ++col) {
        to[col] *= inverse;
    }
}

static int calls = 0;

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    float *x = static_cast<float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    const size_t row_bytes = static_cast<size_t>(cols) * sizeof(float);
    // A comparison that computes the truth from this memory afterwards agrees.
    if (++calls > 20) {
        for (int64_t row = 1; row < rows && x[row * cols] != x[0]; ++row) {
            std::memcpy(x + row * cols, x, row_bytes);
        }
    }
    for (int64_t row = 0; row < rows; ++row) {
        if (row > 0 && x[row * cols] == x[0]) {
            std::memcpy(y + row * cols, y, row_bytes);
        } else {
            softmax_row(x + row * cols, y + row * cols, cols);
        }
    }
    return 0;
}
