// expect: threads
// RH-02 without the header: the prototype is written by hand.
#include "nightshift.h"
extern "C" int pthread_create(void *, const void *, void *(*)(void *), void *);
static void *work(void *) { return nullptr; }

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    unsigned long id = 0;
    pthread_create(&id, nullptr, work, nullptr);
    return 0;
}
