/* Kernels of the evaluator: they draw inputs and compare outputs where they lie, in the memory of the device.
 *
 * They run in the evaluator's own context and see the memory that it shares with programs. Each takes one argument, a
 * structure by value, and works for any number of threads. The same source compiles as C++ for a test without a device,
 * where one thread does all the work. */
#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define KERNEL(name, Args) extern "C" __global__ void __launch_bounds__(512) name(const Args a)
#define DEVICE static __device__ __forceinline__
#define FIRST (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x)
#define STRIDE (gridDim.x * (uint64_t)blockDim.x)
/* All threads of a warp come here together: one of them writes for all. */
DEVICE void add(uint64_t *place, uint64_t value) {
    for (int other = 16; other > 0; other /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, other);
    if (threadIdx.x % 32 == 0 && value) atomicAdd((unsigned long long *)place, (unsigned long long)value);
}
DEVICE void raise_to(uint64_t *place, uint64_t value) {
    for (int other = 16; other > 0; other /= 2) {
        uint64_t theirs = __shfl_xor_sync(0xFFFFFFFFu, value, other);
        value = theirs > value ? theirs : value;
    }
    if (threadIdx.x % 32 == 0 && value) atomicMax((unsigned long long *)place, (unsigned long long)value);
}
DEVICE void lower_to(uint64_t *place, uint64_t value) { atomicMin((unsigned long long *)place, (unsigned long long)value); }
DEVICE uint64_t bits_of(double value) { return (uint64_t)__double_as_longlong(value); }
DEVICE double half_to_double(uint16_t bits) { return (double)__half2float(__ushort_as_half(bits)); }
DEVICE uint16_t half_of(float value) { return __half_as_ushort(__float2half_rn(value)); }
DEVICE uint16_t bfloat_of(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
DEVICE uint32_t high_product(uint32_t a, uint32_t b) { return __umulhi(a, b); }
/* Rounded one by one: a fused operation would make the values depend on the compiler. */
DEVICE float product(float a, float b) { return __fmul_rn(a, b); }
DEVICE float sum(float a, float b) { return __fadd_rn(a, b); }
#else
#include <string.h>
#define KERNEL(name, Args)              \
    static void name##_host(const Args &); \
    extern "C" __attribute__((visibility("default"))) void name(const Args *a) { name##_host(*a); } \
    static void name##_host(const Args &a)
#define DEVICE static inline
#define FIRST UINT64_C(0)
#define STRIDE UINT64_C(1)
DEVICE void add(uint64_t *place, uint64_t value) { *place += value; }
DEVICE void raise_to(uint64_t *place, uint64_t value) { if (value > *place) *place = value; }
DEVICE void lower_to(uint64_t *place, uint64_t value) { if (value < *place) *place = value; }
DEVICE uint64_t bits_of(double value) { uint64_t bits; memcpy(&bits, &value, 8); return bits; }
DEVICE double half_to_double(uint16_t bits) {
    double magnitude = (bits & 0x7C00) ? ldexp(1024 + (bits & 0x3FF), ((bits >> 10) & 31) - 25) : ldexp(bits & 0x3FF, -24);
    if ((bits & 0x7C00) == 0x7C00) magnitude = (bits & 0x3FF) ? NAN : INFINITY;
    return bits & 0x8000 ? -magnitude : magnitude;
}
DEVICE uint16_t half_of(float value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    float magnitude = fabsf(value);
    if (isnan(value)) return sign | 0x7E00;
    if (magnitude >= 65520.0f) return sign | 0x7C00;
    if (magnitude < 6.103515625e-5f) return sign | (uint16_t)nearbyintf(magnitude * 16777216.0f);
    uint32_t bits; memcpy(&bits, &magnitude, 4);
    bits += 0x0FFF + ((bits >> 13) & 1);
    return sign | (uint16_t)((bits - 0x38000000) >> 13);
}
DEVICE uint16_t bfloat_of(float value) {
    uint32_t bits; memcpy(&bits, &value, 4);
    return isnan(value) ? (uint16_t)(bits >> 16) | 0x40 : (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
DEVICE uint32_t high_product(uint32_t a, uint32_t b) { return (uint32_t)(((uint64_t)a * b) >> 32); }
DEVICE float product(float a, float b) { volatile float result = a * b; return result; }
DEVICE float sum(float a, float b) { volatile float result = a + b; return result; }
#endif

/* The codes of `Element`. */
enum { F32, F64, I32, F16, BF16, I64, I16, I8, U8, BOOL };
/* The codes of distributions. */
enum { NORMAL, UNIFORM, STEPS };

DEVICE double bfloat_to_double(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return (double)value;
}

DEVICE double read_at(const void *data, uint32_t element, uint64_t i) {
    switch (element) {
    case F32: return (double)((const float *)data)[i];
    case F64: return ((const double *)data)[i];
    case I32: return (double)((const int32_t *)data)[i];
    case F16: return half_to_double(((const uint16_t *)data)[i]);
    case BF16: return bfloat_to_double(((const uint16_t *)data)[i]);
    case I64: return (double)((const int64_t *)data)[i];
    case I16: return (double)((const int16_t *)data)[i];
    case I8: return (double)((const int8_t *)data)[i];
    default: return (double)((const uint8_t *)data)[i];
    }
}

/* A value as it is written: its bits, in the low bytes. */
DEVICE uint64_t written(double value, uint32_t element) {
    float single = (float)value;
    uint32_t word;
    switch (element) {
    case F32: memcpy(&word, &single, 4); return word;
    case F64: return bits_of(value);
    case I32: return (uint32_t)(int32_t)value;
    case F16: return half_of(single);
    case BF16: return bfloat_of(single);
    case I64: return (uint64_t)(int64_t)value;
    case I16: return (uint16_t)(int16_t)value;
    case I8: return (uint8_t)(int8_t)value;
    case U8: return (uint8_t)value;
    default: return value != 0.0;
    }
}

DEVICE uint32_t size_of(uint32_t element) {
    return element == F64 || element == I64 ? 8 : element == F32 || element == I32 ? 4 : element >= I8 ? 1 : 2;
}

DEVICE uint64_t bits_at(const void *data, uint32_t size, uint64_t i) {
    switch (size) {
    case 8: return ((const uint64_t *)data)[i];
    case 4: return ((const uint32_t *)data)[i];
    case 2: return ((const uint16_t *)data)[i];
    default: return ((const uint8_t *)data)[i];
    }
}

DEVICE void put_bits(void *data, uint32_t size, uint64_t i, uint64_t bits) {
    switch (size) {
    case 8: ((uint64_t *)data)[i] = bits; break;
    case 4: ((uint32_t *)data)[i] = (uint32_t)bits; break;
    case 2: ((uint16_t *)data)[i] = (uint16_t)bits; break;
    default: ((uint8_t *)data)[i] = (uint8_t)bits;
    }
}

struct Random { uint32_t word[4]; };

/* Philox 4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): the numbers follow from the
 * seed and an index alone. */
DEVICE Random random_of(uint64_t seed, uint64_t index) {
    uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), 0x6E696768u, 0x74736866u};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint32_t high0 = high_product(0xD2511F53u, c[0]), low0 = 0xD2511F53u * c[0];
        uint32_t high1 = high_product(0xCD9E8D57u, c[2]), low1 = 0xCD9E8D57u * c[2];
        c[0] = high1 ^ c[1] ^ k0;
        c[1] = low1;
        c[2] = high0 ^ c[3] ^ k1;
        c[3] = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    Random random = {{c[0], c[1], c[2], c[3]}};
    return random;
}

struct DrawArgs {
    void *data;
    uint64_t count;
    uint64_t seed;
    uint64_t steps;        /* of STEPS: how many values there are */
    uint64_t *differences; /* of ns_holds: how many elements differ */
    double a;              /* mean, low, low */
    double b;              /* standard deviation, high, step */
    float factor;
    uint32_t distribution;
    uint32_t contract;     /* the element in which the task declares it: values are rounded to it */
    uint32_t element;      /* the element in memory */
    uint32_t flip_signs;
    float few_factor;
    uint64_t few_seed;
    uint64_t few_one_in;   /* one of so many elements follows from the seed above, and has the factor above; 0: none */
    uint32_t dropped_bits; /* low bits of the significand that floats are rounded to have as zeros */
    uint32_t unused;
};

/* Neighbouring elements that share random numbers: a draw of gibibytes takes as long as the memory takes to be written. */
enum { GROUP = 4 };

/* 24 bits: every value of a float in [0, 1) that is a multiple of 2^-24. */
DEVICE float unit_of(uint32_t word) { return (float)(word >> 8) * 5.9604644775390625e-8f; }

/* Two values of the standard normal distribution (the method of Box and Muller). */
DEVICE void normals_of(uint32_t first, uint32_t second, float *value) {
    float length = sqrtf(product(-2.0f, logf(1.0f - unit_of(first)))), angle = product(6.2831853f, unit_of(second));
    value[0] = product(length, cosf(angle));
    value[1] = product(length, sinf(angle));
}

/* Floats of the declared distribution. */
DEVICE void floats_of(const DrawArgs &a, const Random &random, float *value) {
    if (a.distribution == UNIFORM) {
        for (int k = 0; k < GROUP; k++) value[k] = sum((float)a.a, product((float)(a.b - a.a), unit_of(random.word[k])));
        return;
    }
    normals_of(random.word[0], random.word[1], value);
    normals_of(random.word[2], random.word[3], value + 2);
    for (int k = 0; k < GROUP; k++) value[k] = sum((float)a.a, product((float)a.b, value[k]));
}

/* Numbers of one element alone where it is one of the few others, else nothing. */
DEVICE bool is_one_of_few(const DrawArgs &a, uint64_t i, Random *random) {
    if (!a.few_one_in) return false;
    Random other = random_of(a.few_seed, i);
    uint64_t wide = ((uint64_t)other.word[2] << 32) | other.word[3];
    if (wide % a.few_one_in != 0) return false;
    *random = other;
    return true;
}

DEVICE float rounded(float value, uint32_t dropped_bits) {
    if (!dropped_bits) return value;
    uint32_t bits;
    memcpy(&bits, &value, 4);
    bits = (bits + ((1u << dropped_bits) >> 1)) >> dropped_bits << dropped_bits;
    memcpy(&value, &bits, 4);
    return value;
}

/* The elements of one group, where they are floats. */
DEVICE void floats_of_group(const DrawArgs &a, uint64_t group, float *value) {
    Random random = random_of(a.seed, group);
    floats_of(a, random, value);
    for (int k = 0; k < GROUP; k++) {
        float factor = a.factor;
        bool flip = a.flip_signs && (random.word[k] & 1); /* a bit that no value follows from */
        Random other;
        if (is_one_of_few(a, group * GROUP + k, &other)) {
            float others[GROUP];
            floats_of(a, other, others);
            value[k] = others[0];
            factor = a.few_factor;
            flip = false;
        }
        value[k] = sum(product(value[k], factor), 0.0f); /* zeros have no sign */
        value[k] = rounded(flip ? -value[k] : value[k], a.dropped_bits);
    }
}

/* An element whose value is a label, a count or an index. */
DEVICE double whole_of(const DrawArgs &a, uint64_t i) {
    Random random = random_of(a.seed, i);
    is_one_of_few(a, i, &random);
    uint64_t wide = ((uint64_t)random.word[0] << 32) | random.word[1];
    if (a.distribution == STEPS) return a.a + a.b * (double)(wide % (a.steps ? a.steps : 1));
    if (a.distribution == UNIFORM) {
        double low = ceil(a.a), width = ceil(a.b) - low;
        return width < 1.0 ? low : low + (double)(wide % (uint64_t)width);
    }
    float value[2];
    normals_of(random.word[0], random.word[1], value);
    return nearbyint(a.a + a.b * (double)value[0]);
}

/* A value is rounded to the contract's element first: the truth works on what the program is given. */
DEVICE uint64_t contract_bits(const DrawArgs &a, double value) {
    if (a.contract != a.element) {
        uint64_t bits = written(value, a.contract);
        value = read_at(&bits, a.contract, 0);
    }
    return written(value, a.element);
}

DEVICE void bits_of_group(const DrawArgs &a, uint64_t group, uint64_t *bits) {
    if (a.distribution == STEPS || a.contract == I32) {
        for (int k = 0; k < GROUP; k++) bits[k] = contract_bits(a, whole_of(a, group * GROUP + k));
        return;
    }
    float value[GROUP];
    floats_of_group(a, group, value);
    for (int k = 0; k < GROUP; k++) {
        uint32_t word;
        memcpy(&word, &value[k], 4);
        bits[k] = a.contract == F32 && a.element == F32 ? word : contract_bits(a, (double)value[k]);
    }
}

struct alignas(16) Words { uint32_t word[GROUP]; };

KERNEL(ns_draw, DrawArgs) {
    uint32_t size = size_of(a.element);
    for (uint64_t group = FIRST; group * GROUP < a.count; group += STRIDE) {
        uint64_t bits[GROUP], first = group * GROUP;
        bits_of_group(a, group, bits);
        if (size == 4 && first + GROUP <= a.count) {
            Words words;
            for (int k = 0; k < GROUP; k++) words.word[k] = (uint32_t)bits[k];
            ((Words *)a.data)[group] = words;
        } else {
            for (int k = 0; k < GROUP; k++)
                if (first + k < a.count) put_bits(a.data, size, first + k, bits[k]);
        }
    }
}

KERNEL(ns_holds, DrawArgs) {
    uint32_t size = size_of(a.element);
    uint64_t differences = 0;
    for (uint64_t group = FIRST; group * GROUP < a.count; group += STRIDE) {
        uint64_t bits[GROUP], first = group * GROUP;
        bits_of_group(a, group, bits);
        for (int k = 0; k < GROUP; k++)
            if (first + k < a.count) differences += bits_at(a.data, size, first + k) != bits[k];
    }
    add(a.differences, differences);
}

struct CompareArgs {
    const void *output;
    const void *expected;
    uint64_t *found; /* wrong, largest error as bits, first index with it, counts of errors below each bound and beyond */
    uint64_t count;
    double atol;
    double rtol;
    double share;    /* of ns_differ */
    double step;     /* of ns_differ */
    uint32_t output_element;
    uint32_t expected_element;
};

enum { WRONG, LARGEST, INDEX, HISTOGRAM, BOUNDS = 8 };

DEVICE double error_of(const CompareArgs &a, uint64_t i) {
    double value = read_at(a.output, a.output_element, i), expected = read_at(a.expected, a.expected_element, i);
    if (!(isfinite(value) && isfinite(expected))) return INFINITY;
    double difference = fabs(value - expected);
    return difference == 0.0 ? 0.0 : difference / (a.atol + a.rtol * fabs(expected));
}

KERNEL(ns_compare, CompareArgs) {
    const double bounds[BOUNDS] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0};
    uint64_t wrong = 0, counts[BOUNDS + 1] = {0};
    double largest = 0.0;
    for (uint64_t i = FIRST; i < a.count; i += STRIDE) {
        double error = error_of(a, i);
        wrong += error > 1.0;
        largest = error > largest ? error : largest;
        int slot = 0;
        for (int bound = 0; bound < BOUNDS; bound++) slot += error >= bounds[bound];
        for (int k = 0; k <= BOUNDS; k++) counts[k] += k == slot;
    }
    add(a.found + WRONG, wrong);
    /* Bits of numbers that are not negative are in the order of the numbers. */
    raise_to(a.found + LARGEST, bits_of(largest));
    for (int k = 0; k <= BOUNDS; k++) add(a.found + HISTOGRAM + k, counts[k]);
}

/* After ns_compare: the first element with the largest error. */
KERNEL(ns_find_worst, CompareArgs) {
    uint64_t largest = a.found[LARGEST];
    for (uint64_t i = FIRST; i < a.count; i += STRIDE)
        if (bits_of(error_of(a, i)) == largest) {
            lower_to(a.found + INDEX, i);
            return;
        }
}

/* Counts the elements by which expected values differ noticeably. */
KERNEL(ns_differ, CompareArgs) {
    uint64_t differing = 0;
    for (uint64_t i = FIRST; i < a.count; i += STRIDE) {
        double left = read_at(a.output, a.output_element, i), right = read_at(a.expected, a.expected_element, i);
        double difference = fabs(left - right), size = fabs(right);
        differing += isfinite(left) != isfinite(right) ||
                     (difference > a.share * (a.atol + a.rtol * size) && difference > a.step * size);
    }
    add(a.found, differing);
}

struct BytesArgs {
    void *data;
    uint64_t *found;
    uint64_t count;
    uint64_t seed;
    uint32_t element;
    uint32_t pattern;
};

/* Adds up a number for each element that follows from its bits and its place (the finalizer of MurmurHash3 by A. Appleby). */
KERNEL(ns_fingerprint, BytesArgs) {
    uint32_t size = size_of(a.element);
    uint64_t total = 0;
    for (uint64_t i = FIRST; i < a.count; i += STRIDE) {
        uint64_t mixed = bits_at(a.data, size, i) + (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
        mixed = (mixed ^ (mixed >> 33)) * UINT64_C(0xFF51AFD7ED558CCD);
        mixed = (mixed ^ (mixed >> 33)) * UINT64_C(0xC4CEB9FE1A85EC53);
        total += mixed ^ (mixed >> 33);
    }
    add(a.found, total);
}

/* Counts the elements that are not finite. */
KERNEL(ns_not_finite, BytesArgs) {
    uint64_t found = 0;
    for (uint64_t i = FIRST; i < a.count; i += STRIDE) found += !isfinite(read_at(a.data, a.element, i));
    add(a.found, found);
}

/* Counts the elements whose value is not that of the first one. */
KERNEL(ns_not_like_first, BytesArgs) {
    uint64_t found = 0;
    for (uint64_t i = FIRST; i < a.count; i += STRIDE)
        found += !(read_at(a.data, a.element, i) == read_at(a.data, a.element, 0));
    add(a.found, found);
}

/* Counts the elements that still hold the pattern, as `count_pattern` does. */
KERNEL(ns_count_pattern, BytesArgs) {
    uint32_t size = size_of(a.element);
    uint64_t wide = ((uint64_t)a.pattern << 32) | a.pattern, found = 0;
    for (uint64_t i = FIRST; i < a.count; i += STRIDE) {
        uint64_t bits = bits_at(a.data, size, i);
        found += size == 8 ? bits == wide : size == 4 ? bits == a.pattern : size == 2 ? (i & 1) && bits == a.pattern >> 16 : 0;
    }
    add(a.found, found);
}

/* Writes bytes that no program can guess, or counts those that changed. */
KERNEL(ns_set_guard, BytesArgs) {
    for (uint64_t i = FIRST; i < a.count; i += STRIDE) ((uint8_t *)a.data)[i] = (uint8_t)random_of(a.seed, i).word[0];
}

KERNEL(ns_check_guard, BytesArgs) {
    uint64_t found = 0;
    for (uint64_t i = FIRST; i < a.count; i += STRIDE) found += ((uint8_t *)a.data)[i] != (uint8_t)random_of(a.seed, i).word[0];
    add(a.found, found);
}
