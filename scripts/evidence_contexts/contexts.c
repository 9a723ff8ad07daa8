/* What a CUDA context costs, and what its beginning and end do to times that are taken beside it.
 *
 *     contexts rate PROCESSES EACH IDLE BUSY
 *                                     processes that begin a context and are killed, side by side, one after the other, beside so many
 *                                     that have one and do nothing, and so many that keep the device busy
 *     contexts beside                 times of copies on the device, alone and next to such processes
 *     contexts memory                 times of allocating, freeing and pinning memory, alone and next to such processes
 *
 * Prints a line of JSON for each. Uses the driver alone, as a process does that waits for a program. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long address;

static int (*init)(unsigned), (*device_get)(int *, int), (*retain)(void **, int), (*set_current)(void *);
static int (*allocate)(address *, size_t), (*fill)(address, unsigned, size_t, void *), (*copy)(address, address, size_t, void *);
static int (*release)(address), (*allocate_async)(address *, size_t, void *), (*release_async)(address, void *);
static int (*default_pool)(void **, int), (*pool_set)(void *, int, void *), (*pin)(void *, size_t, unsigned), (*unpin)(void *);
static int (*stream_create)(void **, unsigned), (*event_create)(void **, unsigned), (*event_record)(void *, void *);
static int (*event_wait)(void *), (*event_time)(float *, void *, void *), (*settle)(void);

static void call(int status, const char *what) {
    if (status != 0) {
        fprintf(stderr, "%s: error %d of the CUDA driver\n", what, status);
        exit(1);
    }
}
#define CALL(expression) call(expression, #expression)

static void *found(void *library, const char *name) {
    void *symbol = dlsym(library, name);
    if (!symbol) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return symbol;
}

static void begin_context(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
    int device;
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    *(void **)&init = found(library, "cuInit");
    *(void **)&device_get = found(library, "cuDeviceGet");
    *(void **)&retain = found(library, "cuDevicePrimaryCtxRetain");
    *(void **)&set_current = found(library, "cuCtxSetCurrent");
    *(void **)&allocate = found(library, "cuMemAlloc_v2");
    *(void **)&fill = found(library, "cuMemsetD32Async");
    *(void **)&copy = found(library, "cuMemcpyDtoDAsync_v2");
    *(void **)&stream_create = found(library, "cuStreamCreate");
    *(void **)&event_create = found(library, "cuEventCreate");
    *(void **)&event_record = found(library, "cuEventRecord");
    *(void **)&event_wait = found(library, "cuEventSynchronize");
    *(void **)&event_time = found(library, "cuEventElapsedTime");
    *(void **)&settle = found(library, "cuCtxSynchronize");
    *(void **)&release = found(library, "cuMemFree_v2");
    *(void **)&allocate_async = found(library, "cuMemAllocAsync");
    *(void **)&release_async = found(library, "cuMemFreeAsync");
    *(void **)&default_pool = found(library, "cuDeviceGetDefaultMemPool");
    *(void **)&pool_set = found(library, "cuMemPoolSetAttribute");
    *(void **)&pin = found(library, "cuMemHostRegister_v2");
    *(void **)&unpin = found(library, "cuMemHostUnregister");
    CALL(init(0));
    CALL(device_get(&device, 0));
    CALL(retain(&context, device));
    CALL(set_current(context));
}

static double now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

/* Has a context, tells so, and does nothing with it, or writes to the device's memory all the time, until it is killed. */
static void company(int out, int busy) {
    address memory;
    void *stream;
    begin_context();
    CALL(allocate(&memory, 1 << 30));
    CALL(stream_create(&stream, 1));
    CALL(settle());
    if (write(out, "", 1) != 1) {
        exit(1);
    }
    while (busy) {
        for (int i = 0; i < 16; i++) {
            CALL(fill(memory, i, 256 << 20, stream));
        }
        CALL(settle());
    }
    for (;;) {
        pause();
    }
}

/* Begins a context with some memory, tells that it has it, and is killed. */
static void child(int out) {
    address memory;
    void *stream;
    begin_context();
    CALL(allocate(&memory, 200 << 20));
    CALL(stream_create(&stream, 1));
    CALL(fill(memory, 1, 50 << 20, stream));
    CALL(settle());
    if (write(out, "", 1) != 1) {
        exit(1);
    }
    raise(SIGKILL);
}

struct row {
    int each, failed;
    double begin_ms, end_ms;
};

/* Starts this program with a word that says what it is to be; gives the end of the pipe that it tells in, and -1 where it cannot. */
static int begin_process(const char *what, pid_t *process) {
    int ends[2];
    char number[16];
    if (pipe(ends) != 0) {
        return -1;
    }
    *process = fork();
    if (*process < 0) {
        close(ends[0]);
        close(ends[1]);
        return -1;
    }
    if (*process == 0) {
        snprintf(number, sizeof number, "%d", ends[1]);
        execl("/proc/self/exe", "contexts", what, number, (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    return ends[0];
}

static void *one_after_the_other(void *given) {
    struct row *row = given;
    for (int i = 0; i < row->each; i++) {
        int status;
        char byte;
        pid_t process;
        double started = now_ms();
        int told = begin_process("child", &process);
        if (told < 0) {
            row->failed++;
            continue;
        }
        row->failed += read(told, &byte, 1) != 1;
        double begun = now_ms();
        waitpid(process, &status, 0);
        close(told);
        row->begin_ms += begun - started;
        row->end_ms += now_ms() - begun;
    }
    return NULL;
}

static void start(pthread_t *threads, struct row *rows, int processes, int each) {
    memset(rows, 0, sizeof *rows * processes);
    for (int i = 0; i < processes; i++) {
        rows[i].each = each;
        pthread_create(&threads[i], NULL, one_after_the_other, &rows[i]);
    }
}

static void finish(pthread_t *threads, int processes) {
    for (int i = 0; i < processes; i++) {
        pthread_join(threads[i], NULL);
    }
}

enum { MOST_PROCESSES = 16, MOST_COMPANY = 64, MOST_TIMES = 400000 };

static void rate(int processes, int each, int idle, int busy) {
    pthread_t threads[MOST_PROCESSES];
    struct row rows[MOST_PROCESSES];
    pid_t beside[MOST_COMPANY];
    int told[MOST_COMPANY], failed = 0, count = processes * each;
    for (int i = 0; i < idle + busy; i++) {
        told[i] = begin_process(i < idle ? "idle" : "busy", &beside[i]);
    }
    for (int i = 0; i < idle + busy; i++) {
        char byte;
        failed += told[i] < 0 || read(told[i], &byte, 1) != 1;
    }
    double begin_ms = 0, end_ms = 0, started = now_ms();
    start(threads, rows, processes, each);
    finish(threads, processes);
    double took_ms = now_ms() - started;
    for (int i = 0; i < idle + busy; i++) {
        if (told[i] >= 0) {
            kill(beside[i], SIGKILL);
            waitpid(beside[i], NULL, 0);
        }
    }
    for (int i = 0; i < processes; i++) {
        begin_ms += rows[i].begin_ms;
        end_ms += rows[i].end_ms;
        failed += rows[i].failed;
    }
    printf("{\"processes\": %d, \"idle\": %d, \"busy\": %d, \"count\": %d, \"failed\": %d, \"per_second\": %.2f, \"begin_ms\": %.1f, "
           "\"end_ms\": %.1f}\n", processes, idle, busy, count, failed, count / took_ms * 1e3, begin_ms / count, end_ms / count);
}

static int by_size(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static address from, to;
static void *stream, *started, *ended;
static double times[MOST_TIMES];

static void time_copies(int processes, size_t bytes, double for_ms) {
    int count = 0;
    double mean = 0, until = now_ms() + for_ms;
    while (now_ms() < until && count < MOST_TIMES) {
        float ms;
        CALL(fill(from, count, 4 << 20, stream));
        CALL(event_record(started, stream));
        CALL(copy(to, from, bytes, stream));
        CALL(event_record(ended, stream));
        CALL(event_wait(ended));
        CALL(event_time(&ms, started, ended));
        times[count++] = ms * 1e3;
    }
    qsort(times, count, sizeof *times, by_size);
    for (int i = count / 10; i < count - count / 10; i++) {
        mean += times[i] / (count - count / 10 * 2);
    }
    printf("{\"beside\": %d, \"mib\": %zu, \"count\": %d, \"trimmed_mean_us\": %.3f, \"median_us\": %.3f, \"p99_us\": %.3f, "
           "\"largest_us\": %.3f}\n", processes, bytes >> 20, count, mean, times[count / 2], times[count - 1 - count / 100],
           times[count - 1]);
    fflush(stdout);
}

static void beside(void) {
    const size_t sizes[] = {1 << 20, 64 << 20, 1 << 30};
    pthread_t threads[MOST_PROCESSES];
    struct row rows[MOST_PROCESSES];
    begin_context();
    CALL(allocate(&from, 1 << 30));
    CALL(allocate(&to, 1 << 30));
    CALL(stream_create(&stream, 1));
    CALL(event_create(&started, 0));
    CALL(event_create(&ended, 0));
    for (int size = 0; size < 3; size++) {
        time_copies(0, sizes[size], 500);
        for (int turn = 0; turn < 2; turn++) {
            time_copies(0, sizes[size], 800);
            for (int processes = 1; processes <= 4; processes *= 2) {
                start(threads, rows, processes, 3);
                time_copies(processes, sizes[size], 800);
                finish(threads, processes);
            }
        }
    }
}

/* As many tensors, of the size, as a measurement of a product of matrices has on the device; and the memory that they come through. */
enum { TENSORS = 40, TENSOR_BYTES = 64 << 20, PINNED_BYTES = 512 << 20, KEPT_IN_POOL = 4, TURNS = 3 };

static void time_memory(int processes) {
    pthread_t threads[MOST_PROCESSES];
    struct row rows[MOST_PROCESSES];
    address tensors[TENSORS];
    double ms[6] = {0};
    start(threads, rows, processes, 6);
    for (int turn = 0; turn < TURNS; turn++) {
        void *shared = mmap(NULL, PINNED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED) {
            perror("mmap");
            exit(1);
        }
        madvise(shared, PINNED_BYTES, MADV_HUGEPAGE);
        double at[7] = {now_ms()};
        for (int i = 0; i < TENSORS; i++) {
            CALL(allocate(&tensors[i], TENSOR_BYTES));
        }
        at[1] = now_ms();
        for (int i = 0; i < TENSORS; i++) {
            CALL(release(tensors[i]));
        }
        at[2] = now_ms();
        for (int i = 0; i < TENSORS; i++) {
            CALL(allocate_async(&tensors[i], TENSOR_BYTES, stream));
        }
        for (int i = 0; i < TENSORS; i++) {
            CALL(release_async(tensors[i], stream));
        }
        CALL(settle());
        at[3] = now_ms();
        CALL(pin(shared, PINNED_BYTES, 0));
        at[4] = now_ms();
        CALL(unpin(shared));
        at[5] = now_ms();
        CALL(pin(shared, PINNED_BYTES, 0));
        at[6] = now_ms();
        CALL(unpin(shared));
        munmap(shared, PINNED_BYTES);
        for (int part = 0; part < 6; part++) {
            ms[part] += (at[part + 1] - at[part]) / TURNS;
        }
    }
    finish(threads, processes);
    printf("{\"beside\": %d, \"tensors\": %d, \"allocate_ms\": %.1f, \"free_ms\": %.1f, \"pool_ms\": %.1f, \"pinned_mib\": %d, "
           "\"pin_ms\": %.1f, \"unpin_ms\": %.1f, \"pin_again_ms\": %.1f}\n", processes, TENSORS, ms[0], ms[1], ms[2], PINNED_BYTES >> 20,
           ms[3], ms[4], ms[5]);
    fflush(stdout);
}

static void memory(void) {
    void *pool;
    address all;
    unsigned long long everything = ~0ull;
    begin_context();
    CALL(stream_create(&stream, 1));
    CALL(default_pool(&pool, 0));
    CALL(pool_set(pool, KEPT_IN_POOL, &everything));
    /* What the pool has once, it keeps. */
    CALL(allocate_async(&all, (size_t)TENSORS * TENSOR_BYTES, stream));
    CALL(release_async(all, stream));
    CALL(settle());
    time_memory(0);
    for (int processes = 1; processes <= 4; processes *= 2) {
        time_memory(processes);
    }
}

int main(int count, char **given) {
    int rates[4] = {0};
    for (int i = 2; i < count && i < 6; i++) {
        rates[i - 2] = atoi(given[i]);
    }
    int wanted = rates[0] > 0 && rates[0] <= MOST_PROCESSES && rates[1] > 0 && rates[2] >= 0 && rates[3] >= 0
        && rates[2] + rates[3] <= MOST_COMPANY;
    if (count == 3 && strcmp(given[1], "child") == 0) {
        child(atoi(given[2]));
    } else if (count == 3 && (strcmp(given[1], "idle") == 0 || strcmp(given[1], "busy") == 0)) {
        company(atoi(given[2]), strcmp(given[1], "busy") == 0);
    } else if (count == 6 && strcmp(given[1], "rate") == 0 && wanted) {
        rate(rates[0], rates[1], rates[2], rates[3]);
    } else if (count == 2 && strcmp(given[1], "beside") == 0) {
        beside();
    } else if (count == 2 && strcmp(given[1], "memory") == 0) {
        memory();
    } else {
        fprintf(stderr, "contexts rate PROCESSES EACH IDLE BUSY | contexts beside | contexts memory, with 1 to %d processes, and at most %d "
                "idle and busy ones\n", MOST_PROCESSES, MOST_COMPANY);
        return 2;
    }
    return 0;
}
