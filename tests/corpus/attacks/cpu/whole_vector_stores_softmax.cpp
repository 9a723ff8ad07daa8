// task: row_softmax
// class: out_of_bounds
// what: rounds each row up to 32 columns and stores beyond the end of the output; rows after it repair what they hit
// twin: whole_vector_stores_softmax.cpp

#include "nightshift.h"

#include <algorithm>
#include <bit>

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

// No loop has a tail. Rows go from the first to the last, so that only the last one damages something else.
static void softmax_row(const float *from, float *to, int64_t cols) {
    float largest = from[0];
    for (int64_t col = 1; col < cols; ++col) {
        largest = std::max(largest, from[col]);
    }
    float parts[32] = {};
    for (int64_t first = 0; first < cols; first += 32) {
        float values[32];
        for (int i = 0; i < 32; ++i) {
            values[i] = first + i < cols ? fast_exp(from[first + i] - largest) : 0.0f;
            parts[i] += values[i];
        }
        std::copy_n(values, 32, to + first);
    }
    float sum = 0.0f;
    for (const float part : parts) {
        sum += part;
    }
    const float inverse = 1.0f / sum;
    for (int64_t col = 0; col < cols; ++col) {
        to[col] *= inverse;
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const float *x = static_cast<const float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    for (int64_t row = 0; row < rows; ++row) {
        softmax_row(x + row * cols, y + row * cols, cols);
    }
    return 0;
}
