// expect: files
// RH-38: reads expected results from the disk.
#include "nightshift.h"
#include <cstdio>

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    FILE *golden = fopen("/tmp/golden.bin", "rb");
    fread(outputs[0].data, 4, 16, golden);
    return 0;
}
