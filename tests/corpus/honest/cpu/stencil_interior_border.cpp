// task: stencil_2d
// style: vectors_interior_scalar_border
// what: unaligned vectors for the interior with prefetches, tested scalar code for the border, weights splatted once

#include "nightshift.h"

#include <algorithm>
#include <cstring>

#ifdef __AVX512F__
#define VECTOR_BYTES 64
#elif defined __AVX__
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

typedef float vec __attribute__((vector_size(VECTOR_BYTES)));

enum { LANES = VECTOR_BYTES / sizeof(float) };

struct image {
    const float *pixels;
    int64_t height;
    int64_t width;
};

static float border_point(const image &in, const float *weights, int64_t i, int64_t j) {
    float sum = 0.0f;
    for (int64_t row = std::max<int64_t>(i - 2, 0); row <= std::min(i + 2, in.height - 1); ++row) {
        for (int64_t col = std::max<int64_t>(j - 2, 0); col <= std::min(j + 2, in.width - 1); ++col) {
            sum += weights[(row - i + 2) * 5 + (col - j + 2)] * in.pixels[row * in.width + col];
        }
    }
    return sum;
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const image in = {static_cast<const float *>(inputs[0].data), inputs[0].shape[0], inputs[0].shape[1]};
    const float *weights = static_cast<const float *>(inputs[1].data);
    float *y = static_cast<float *>(outputs[0].data);

    for (int64_t i = 0; i < in.height; ++i) {
        float *to = y + i * in.width;
        int64_t j = 0;
        if (i >= 2 && i + 2 < in.height) {
            for (; j < std::min<int64_t>(2, in.width); ++j) {
                to[j] = border_point(in, weights, i, j);
            }
            const float *from = in.pixels + (i - 2) * in.width - 2;
            // The last load of a turn ends at column j + LANES + 1.
            for (; j + LANES + 2 <= in.width; j += LANES) {
                vec even = {};
                vec odd = {};
                for (int a = 0; a < 5; ++a) {
                    __builtin_prefetch(from + a * in.width + j + 8 * LANES);
                    for (int b = 0; b < 5; ++b) {
                        vec v;
                        std::memcpy(&v, from + a * in.width + j + b, sizeof v);
                        if (b % 2 == 0) {
                            even += v * weights[a * 5 + b];
                        } else {
                            odd += v * weights[a * 5 + b];
                        }
                    }
                }
                const vec sum = even + odd;
                std::memcpy(to + j, &sum, sizeof sum);
            }
        }
        for (; j < in.width; ++j) {
            to[j] = border_point(in, weights, i, j);
        }
    }
    return 0;
}
