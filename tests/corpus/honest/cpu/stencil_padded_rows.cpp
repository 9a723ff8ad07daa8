// task: stencil_2d
// style: workspace_ring_of_padded_rows
// what: keeps the five rows around a line in zero-padded buffers in the workspace, so that the inner loop needs no tests

#include "nightshift.h"

#include <cstring>
#include <memory>

constexpr int64_t PAD = 16; // floats before the first column; the stencil needs two

// y[j] = sum over the five rows and columns, for one line of the image.
static void line(const float *const (&rows)[5], const float *__restrict weights, float *__restrict y, int64_t width) {
    for (int64_t j = 0; j < width; ++j) {
        float sum = 0.0f;
#pragma GCC unroll 5
        for (int a = 0; a < 5; ++a) {
            const float *from = rows[a] + j - 2;
            sum += weights[a * 5] * from[0] + weights[a * 5 + 1] * from[1] + weights[a * 5 + 2] * from[2] +
                   weights[a * 5 + 3] * from[3] + weights[a * 5 + 4] * from[4];
        }
        y[j] = sum;
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace, void *) {
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *weights = static_cast<const float *>(inputs[1].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t height = inputs[0].shape[0];
    const int64_t width = inputs[0].shape[1];

    const int64_t pitch = (width + 2 * PAD + 15) / 16 * 16;
    const size_t bytes = sizeof(float) * static_cast<size_t>(6 * pitch);
    std::unique_ptr<float[]> own;
    float *buffers = static_cast<float *>(workspace);
    if (bytes > NS_WORKSPACE_BYTES) {
        own = std::make_unique<float[]>(static_cast<size_t>(6 * pitch));
        buffers = own.get();
    }
    // Buffers 0 to 4 form a ring over the rows of the image, buffer 5 is a row of zeros.
    std::memset(buffers, 0, bytes);
    const float *zeros = buffers + 5 * pitch + PAD;
    const auto buffer_of = [&](int64_t row) { return buffers + row % 5 * pitch + PAD; };
    const auto fetch = [&](int64_t row) {
        if (row < height) {
            std::memcpy(buffer_of(row), x + row * width, sizeof(float) * static_cast<size_t>(width));
        }
    };

    fetch(0);
    fetch(1);
    for (int64_t i = 0; i < height; ++i) {
        fetch(i + 2);
        const float *rows[5];
        for (int64_t a = 0; a < 5; ++a) {
            const int64_t row = i + a - 2;
            rows[a] = row >= 0 && row < height ? buffer_of(row) : zeros;
        }
        line(rows, weights, y + i * width, width);
    }
    return 0;
}
