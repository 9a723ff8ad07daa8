// Functions of the standard library that share a name with system calls.
#include "nightshift.h"

#include <algorithm>
#include <functional>
#include <vector>
using namespace std;

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    vector<float> kept(16, 1.0f);
    kept.erase(remove(kept.begin(), kept.end(), 0.0f), kept.end());
    auto half = bind(multiplies<float>(), placeholders::_1, 0.5f);
    static_cast<float *>(outputs[0].data)[0] = half(kept[0]);
    return 0;
}
