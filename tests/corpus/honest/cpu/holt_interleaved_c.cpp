// task: holt_smoothing
// style: c_style_interleaved_crlf
// what: eight series side by side in plain C so that their dependent steps overlap; CRLF line ends

#include "nightshift.h"

#define WIDE 8

typedef struct {
    float level[WIDE];
    float trend[WIDE];
} holt_t;

static void smooth(const float *x, float *y, int64_t length, int count)
{
    holt_t s;
    int64_t t;
    int i;

    for (i = 0; i < count; ++i) {
        s.level[i] = x[i * length];
        s.trend[i] = 0.0f;
        y[i * length] = s.level[i];
    }
    for (t = 1; t < length; ++t) {
        for (i = 0; i < count; ++i) {
            const float previous = s.level[i];
            /* 0.3 * x + 0.7 * forecast, where the forecast is level plus trend */
            s.level[i] = 0.3f * x[i * length + t] + 0.7f * (previous + s.trend[i]);
            s.trend[i] = 0.1f * (s.level[i] - previous) + 0.9f * s.trend[i];
            y[i * length + t] = s.level[i];
        }
    }
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream)
{
    const float *x = (const float *)inputs[0].data;
    float *y = (float *)outputs[0].data;
    const int64_t series = inputs[0].shape[0];
    const int64_t length = inputs[0].shape[1];
    int64_t first;

    (void)state, (void)n_inputs, (void)n_outputs, (void)workspace, (void)stream;
    for (first = 0; first + WIDE <= series; first += WIDE)
        smooth(x + first * length, y + first * length, length, WIDE);
    if (first < series)
        smooth(x + first * length, y + first * length, length, (int)(series - first));
    return 0;
}
