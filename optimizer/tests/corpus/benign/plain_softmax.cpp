// An honest, plain program.
#include "nightshift.h"
#include <algorithm>
#include <cmath>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0], columns = inputs[0].shape[1];
    for (int64_t r = 0; r < rows; r++) {
        const float *row = x + r * columns;
        float top = row[0], sum = 0.0f;
        for (int64_t c = 1; c < columns; c++) top = std::max(top, row[c]);
        for (int64_t c = 0; c < columns; c++) sum += y[r * columns + c] = std::exp(row[c] - top);
        for (int64_t c = 0; c < columns; c++) y[r * columns + c] /= sum;
    }
    return 0;
}
