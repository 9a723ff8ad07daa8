// Checks the candidate against the reference of its task, and times both.
//
//   compare [--seed N] [--samples N] [--candidate FILE]
//
// Every shape of the contract is drawn from the seed. The truth is the reference in double precision; where the reference is a
// model of PyTorch, answers.py asks it, with $PYTHON or python3. An element is right when |candidate - truth| <= ATOL + RTOL * |truth|; besides, the largest error may not be more than
// REFERENCE_ERROR_FACTOR times the reference's own. Ends with 0 when everything is right, with 1 when something is wrong, and
// with 2 when the programs could not be run.
#include "contract.h"
#include "nightshift.h"

#include <dlfcn.h>
#include <unistd.h>
#ifdef NIGHTSHIFT_MODEL
#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#endif

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef NIGHTSHIFT_CUDA
#include <cuda_runtime.h>
#endif

namespace {

using contract::Shapes;
using contract::Tensor;
using contract::Values;

// Inputs that are drawn for each shape.
constexpr int DRAWS = 3;
// What a reference that is nearly exact counts as, in parts of the tolerance.
constexpr double SMALLEST_REFERENCE_ERROR = 1e-4;
// A sample takes at least this long, so that the clock's own time does not count.
constexpr double SAMPLE_S = 2e-3;
constexpr size_t ALIGNMENT = 256;

constexpr const char *USAGE = "usage: compare [--seed N] [--samples N] [--candidate FILE]";

// Ends the program with 2, by way of whatever has to be cleaned up.
[[noreturn]] void fail(const std::string &message) { throw std::runtime_error(message); }

#ifdef NIGHTSHIFT_CUDA
void examine(cudaError_t status, const char *doing) {
    if (status != cudaSuccess) fail(std::string(doing) + ": " + cudaGetErrorString(status));
}
#endif

// Memory as the programs see it: of this process, or of the device.
class Memory {
  public:
    explicit Memory(size_t bytes) : bytes_(bytes) {
#ifdef NIGHTSHIFT_CUDA
        examine(cudaMalloc(&data_, std::max(bytes, size_t(1))), "taking memory of the device");
#else
        data_ = std::aligned_alloc(ALIGNMENT, (std::max(bytes, size_t(1)) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
        if (data_ == nullptr) fail("there is not enough memory");
#endif
    }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    ~Memory() {
#ifdef NIGHTSHIFT_CUDA
        (void)cudaFree(data_);
#else
        std::free(data_);
#endif
    }

    void *data() const { return data_; }

    void write(const std::vector<unsigned char> &from) {
#ifdef NIGHTSHIFT_CUDA
        examine(cudaMemcpy(data_, from.data(), bytes_, cudaMemcpyHostToDevice), "copying to the device");
#else
        std::memcpy(data_, from.data(), bytes_);
#endif
    }

    void read(std::vector<unsigned char> &to) const {
#ifdef NIGHTSHIFT_CUDA
        examine(cudaMemcpy(to.data(), data_, bytes_, cudaMemcpyDeviceToHost), "copying from the device");
#else
        std::memcpy(to.data(), data_, bytes_);
#endif
    }

    // All ones: no number in any float format.
    void poison() {
#ifdef NIGHTSHIFT_CUDA
        examine(cudaMemset(data_, 0xFF, bytes_), "filling memory of the device");
#else
        std::memset(data_, 0xFF, bytes_);
#endif
    }

  private:
    void *data_ = nullptr;
    size_t bytes_;
};

size_t width(int32_t dtype) {
    switch (dtype) {
        case NS_F64: return 8;
        case NS_F16:
        case NS_BF16: return 2;
        default: return 4;
    }
}

uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

float float_of(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Half precision, rounded to the nearest, to even when there are two.
uint16_t f16_from(float value) {
    const uint32_t bits = bits_of(value);
    const uint16_t sign = uint16_t((bits >> 16) & 0x8000u);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return uint16_t(sign | 0x7E00u);
    const double magnitude = std::fabs(double(value));
    if (magnitude >= 65520.0) return uint16_t(sign | 0x7C00u);
    if (magnitude == 0.0) return sign;
    int exponent;
    std::frexp(magnitude, &exponent);
    // The distance between neighbours: below the smallest normal number it stays the same.
    const int step = std::max(exponent - 11, -24);
    const double steps = std::nearbyint(std::ldexp(magnitude, -step));
    const uint32_t count = uint32_t(steps);
    if (step == -24) return uint16_t(sign | count);
    return uint16_t(sign | (uint32_t(step + 24) * 1024u + count));
}

float f16_to(uint16_t bits) {
    const float sign = (bits & 0x8000u) != 0 ? -1.0f : 1.0f;
    const int exponent = (bits >> 10) & 0x1F;
    const int fraction = bits & 0x3FF;
    if (exponent == 0x1F) {
        return fraction == 0 ? sign * std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    }
    if (exponent == 0) return sign * std::ldexp(float(fraction), -24);
    return sign * std::ldexp(float(fraction + 1024), exponent - 25);
}

uint16_t bf16_from(float value) {
    const uint32_t bits = bits_of(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return uint16_t((bits >> 16) | 0x40u);
    return uint16_t((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

template <typename T>
void put(unsigned char *at, T value) {
    std::memcpy(at, &value, sizeof value);
}

template <typename T>
T get(const unsigned char *at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// Values of a tensor, as they lie in memory.
struct Data {
    int32_t dtype;
    std::vector<unsigned char> bytes;

    size_t size() const { return bytes.size() / width(dtype); }

    double at(size_t index) const {
        const unsigned char *place = bytes.data() + index * width(dtype);
        switch (dtype) {
            case NS_F64: return get<double>(place);
            case NS_I32: return get<int32_t>(place);
            case NS_F16: return f16_to(get<uint16_t>(place));
            case NS_BF16: return float_of(uint32_t(get<uint16_t>(place)) << 16);
            default: return get<float>(place);
        }
    }

    void set(size_t index, double value) {
        unsigned char *place = bytes.data() + index * width(dtype);
        switch (dtype) {
            case NS_F64: put(place, value); break;
            case NS_I32: put(place, int32_t(value)); break;
            case NS_F16: put(place, f16_from(float(value))); break;
            case NS_BF16: put(place, bf16_from(float(value))); break;
            default: put(place, float(value));
        }
    }
};

size_t elements(const Tensor &tensor) {
    size_t count = 1;
    for (const int64_t extent : tensor.shape) count *= size_t(extent);
    return count;
}

// The type that a tensor has for the truth: floats are widened.
int32_t dtype_of(const Tensor &tensor, bool wide) {
    return wide && tensor.dtype != NS_I32 ? NS_F64 : tensor.dtype;
}

Data empty(const Tensor &tensor, bool wide) {
    const int32_t dtype = dtype_of(tensor, wide);
    return Data{dtype, std::vector<unsigned char>(elements(tensor) * width(dtype))};
}

class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}

    uint64_t bits() {
        uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }

    // From 0 up to, and without, 1.
    double unit() { return double(bits() >> 11) * 0x1p-53; }

    double normal() {
        const double radius = std::sqrt(-2.0 * std::log(1.0 - unit()));
        return radius * std::cos(6.283185307179586 * unit());
    }

  private:
    uint64_t state_;
};

Data draw(const Tensor &tensor, Random &random) {
    Data data = empty(tensor, false);
    const bool is_whole = tensor.dtype == NS_I32;
    const double low = std::ceil(tensor.first), high = std::ceil(tensor.second);
    for (size_t i = 0; i < data.size(); ++i) {
        double value;
        if (tensor.values == Values::normal) {
            value = tensor.first + tensor.second * random.normal();
            if (is_whole) value = std::round(value);
        } else if (tensor.values == Values::steps) {
            // A rounding error may not add a value.
            const double count = std::max(std::ceil((tensor.second - tensor.first) / tensor.step - 1e-9), 1.0);
            value = tensor.first + tensor.step * std::min(std::floor(count * random.unit()), count - 1.0);
        } else if (is_whole) {
            value = high > low ? std::min(low + std::floor((high - low) * random.unit()), high - 1.0) : low;
        } else {
            value = tensor.first + (tensor.second - tensor.first) * random.unit();
        }
        // Floats are drawn in single precision, so that candidate and truth are given the same values.
        data.set(i, is_whole ? value : double(float(value)));
    }
    return data;
}

std::vector<Data> draw_all(const std::vector<Tensor> &tensors, Random &random) {
    std::vector<Data> drawn;
    for (const Tensor &tensor : tensors) drawn.push_back(draw(tensor, random));
    return drawn;
}

// A library with the entry points of nightshift.h.
struct Program {
    int (*init)(const ns_tensor *, int32_t, void **) = nullptr;
    int (*run)(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) = nullptr;
    void (*free)(void *) = nullptr;

    explicit Program(const std::string &file) {
        void *library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) fail(dlerror());
        init = reinterpret_cast<decltype(init)>(dlsym(library, "ns_init"));
        run = reinterpret_cast<decltype(run)>(dlsym(library, "ns_run"));
        free = reinterpret_cast<decltype(free)>(dlsym(library, "ns_free"));
        if (run == nullptr) fail(file + " does not export ns_run");
    }
};

// A program at one shape, with weights.
class Session {
  public:
    Session(const char *name, const Program &program, const Shapes &shapes, bool wide, const std::vector<Data> &params)
        : name_(name), program_(program), wide_(wide), inputs_(shapes.inputs.size()), workspace_(NS_WORKSPACE_BYTES) {
        // Descriptors point into these: they may not move any more.
        const size_t count = shapes.inputs.size() + shapes.params.size() + shapes.outputs.size();
        strides_.reserve(count);
        for (const Tensor &tensor : shapes.inputs) describe(tensor, in_);
        for (const Tensor &tensor : shapes.params) describe(tensor, in_);
        for (const Tensor &tensor : shapes.outputs) describe(tensor, out_);
        for (size_t i = 0; i < params.size(); ++i) {
            weights_.push_back(fitting(params[i]).bytes);
            memory_[inputs_ + i]->write(weights_.back());
        }
        outputs_ = &shapes.outputs;
#ifdef NIGHTSHIFT_CUDA
        cudaStream_t stream;
        examine(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
        stream_ = stream;
#endif
        const ns_tensor *weights = params.empty() ? nullptr : in_.data() + inputs_;
        if (program_.init != nullptr && program_.init(weights, int32_t(params.size()), &state_) != 0) {
            fail(std::string(name_) + ": ns_init says that it failed");
        }
        wait();
    }
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;
    ~Session() {
        if (program_.free != nullptr) program_.free(state_);
#ifdef NIGHTSHIFT_CUDA
        (void)cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
#endif
    }

    // One call on these inputs. Says whether inputs and weights are still what they were.
    std::vector<Data> call(const std::vector<Data> &inputs, bool *kept) {
        std::vector<std::vector<unsigned char>> given;
        for (size_t i = 0; i < inputs.size(); ++i) {
            given.push_back(fitting(inputs[i]).bytes);
            memory_[i]->write(given.back());
        }
        for (size_t i = in_.size(); i < memory_.size(); ++i) memory_[i]->poison();
        run();
        wait();
        given.insert(given.end(), weights_.begin(), weights_.end());
        *kept = true;
        for (size_t i = 0; i < given.size(); ++i) {
            std::vector<unsigned char> after(given[i].size());
            memory_[i]->read(after);
            *kept = *kept && after == given[i];
        }
        std::vector<Data> outputs;
        for (size_t i = 0; i < outputs_->size(); ++i) {
            outputs.push_back(empty((*outputs_)[i], wide_));
            memory_[in_.size() + i]->read(outputs.back().bytes);
        }
        return outputs;
    }

    // Seconds of so many calls on what lies there.
    double seconds(int calls) {
        wait();
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < calls; ++i) run();
        wait();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }

  private:
    void describe(const Tensor &tensor, std::vector<ns_tensor> &to) {
        const int32_t dtype = dtype_of(tensor, wide_);
        memory_.push_back(std::make_unique<Memory>(elements(tensor) * width(dtype)));
        std::vector<int64_t> strides(tensor.shape.size(), 1);
        for (size_t axis = strides.size(); axis > 1; --axis) {
            strides[axis - 2] = strides[axis - 1] * tensor.shape[axis - 1];
        }
        strides_.push_back(std::move(strides));
        to.push_back(ns_tensor{memory_.back()->data(), dtype, int32_t(tensor.shape.size()), tensor.shape.data(),
                               strides_.back().data(), tensor.name});
    }

    Data fitting(const Data &data) const {
        if (!wide_ || data.dtype == NS_I32) return data;
        Data widened{NS_F64, std::vector<unsigned char>(data.size() * 8)};
        for (size_t i = 0; i < data.size(); ++i) widened.set(i, data.at(i));
        return widened;
    }

    void run() {
        const int status = program_.run(state_, in_.data(), int32_t(in_.size()), out_.data(), int32_t(out_.size()),
                                        workspace_.data(), stream_);
        if (status != 0) fail(std::string(name_) + ": ns_run says that it failed: " + std::to_string(status));
    }

    void wait() {
#ifdef NIGHTSHIFT_CUDA
        examine(cudaDeviceSynchronize(), name_);
#endif
    }

    const char *name_;
    const Program &program_;
    bool wide_;
    size_t inputs_;
    const std::vector<Tensor> *outputs_ = nullptr;
    std::vector<std::unique_ptr<Memory>> memory_;
    std::vector<std::vector<unsigned char>> weights_;
    std::vector<std::vector<int64_t>> strides_;
    std::vector<ns_tensor> in_, out_;
    Memory workspace_;
    void *stream_ = nullptr;
    void *state_ = nullptr;
};

struct Found {
    size_t elements = 0;
    size_t wrong = 0;
    // In parts of the tolerance.
    double largest = 0.0;
    std::string worst;
};

double error_of(double value, double truth) {
    if (!std::isfinite(value) || !std::isfinite(truth)) return std::numeric_limits<double>::infinity();
    const double difference = std::fabs(value - truth);
    return difference == 0.0 ? 0.0 : difference / (contract::ATOL + contract::RTOL * std::fabs(truth));
}

Found compare(const std::vector<Data> &outputs, const std::vector<Data> &truth, const std::vector<Tensor> &tensors) {
    Found found;
    for (size_t t = 0; t < tensors.size(); ++t) {
        for (size_t i = 0; i < truth[t].size(); ++i) {
            const double error = error_of(outputs[t].at(i), truth[t].at(i));
            found.elements += 1;
            found.wrong += error > 1.0 ? 1 : 0;
            if (found.worst.empty() || error > found.largest) {
                char text[160];
                std::snprintf(text, sizeof text, "%s, element %zu: %.9g in place of %.9g", tensors[t].name, i,
                              outputs[t].at(i), truth[t].at(i));
                found.worst = text;
                found.largest = error;
            }
        }
    }
    return found;
}

bool is_finite(const std::vector<Data> &tensors) {
    for (const Data &tensor : tensors) {
        for (size_t i = 0; i < tensor.size(); ++i) {
            if (!std::isfinite(tensor.at(i))) return false;
        }
    }
    return true;
}

std::string own_folder() {
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return ".";
    const std::string text(path, size_t(length));
    return text.substr(0, text.rfind('/'));
}

// What is right for some inputs: in double precision, and as the reference says it.
struct Answer {
    std::vector<Data> truth, usual;
};

using Draws = std::vector<std::vector<Data>>;

#ifdef NIGHTSHIFT_MODEL

struct Programs {
    Program candidate;

    Programs(const std::string &file) : candidate(file) {}
};

// A folder that goes away with this.
class Folder {
  public:
    Folder() {
        const char *given = std::getenv("TMPDIR");
        path_ = std::string(given == nullptr || *given == '\0' ? "/tmp" : given) + "/compare-XXXXXX";
        if (mkdtemp(path_.data()) == nullptr) fail("no folder can be made at " + path_ + ": set TMPDIR to a folder with room");
    }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }

    const std::string &path() const { return path_; }

    void write(const std::string &name, const Data &data) const {
        std::ofstream file(path_ + "/" + name, std::ios::binary);
        file.write(reinterpret_cast<const char *>(data.bytes.data()), std::streamsize(data.bytes.size()));
        if (!file.flush()) fail("writing to " + path_ + " did not succeed: is there room?");
    }

    Data read(const std::string &name, Data empty) const {
        std::ifstream file(path_ + "/" + name, std::ios::binary);
        file.read(reinterpret_cast<char *>(empty.bytes.data()), std::streamsize(empty.bytes.size()));
        if (!file || file.peek() != std::ifstream::traits_type::eof()) fail("the model's answer has another size than the contract's");
        return empty;
    }

  private:
    std::string path_;
};

// The model's answers, and the seconds of so many samples of calls on the first inputs.
std::vector<Answer> ask_model(const Shapes &shapes, const std::vector<Data> &params, const Draws &draws, int samples,
                              std::vector<double> *seconds) {
    const Folder folder;
    for (size_t i = 0; i < params.size(); ++i) folder.write("param-" + std::to_string(i), params[i]);
    const auto name = [](size_t draw, const char *kind, size_t i) {
        return "draw-" + std::to_string(draw) + "-" + kind + "-" + std::to_string(i);
    };
    for (size_t draw = 0; draw < draws.size(); ++draw) {
        for (size_t i = 0; i < draws[draw].size(); ++i) folder.write(name(draw, "input", i), draws[draw][i]);
    }
    const char *given = std::getenv("PYTHON");
    const std::string python = given == nullptr || *given == '\0' ? "python3" : given;
    const std::string script = own_folder() + "/answers.py";
    const std::string count = std::to_string(draws.size()), timed = std::to_string(samples);
    const pid_t child = fork();
    if (child == 0) {
        execlp(python.c_str(), python.c_str(), script.c_str(), folder.path().c_str(), shapes.name, count.c_str(), timed.c_str(),
               static_cast<char *>(nullptr));
        std::_Exit(127);
    }
    if (child < 0) fail("starting " + python + " did not succeed");
    // An interrupt from the terminal also ends the Python process. This program then removes its files and exits.
    const auto before = signal(SIGINT, SIG_IGN);
    int status = 0;
    const bool is_over = waitpid(child, &status, 0) == child;
    (void)signal(SIGINT, before);
    if (!is_over) fail("waiting for " + python + " did not succeed");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) fail(python + " cannot be run: set PYTHON to a Python interpreter that has PyTorch");
    if (status != 0) {
        fail("the model gave no answers: what Python said is above (it was " + python + "; PYTHON names another one)");
    }
    std::vector<Answer> answers;
    for (size_t draw = 0; draw < draws.size(); ++draw) {
        Answer answer;
        for (size_t i = 0; i < shapes.outputs.size(); ++i) {
            answer.truth.push_back(folder.read(name(draw, "truth", i), empty(shapes.outputs[i], true)));
            answer.usual.push_back(folder.read(name(draw, "usual", i), empty(shapes.outputs[i], false)));
        }
        answers.push_back(std::move(answer));
    }
    std::ifstream times(folder.path() + "/seconds");
    for (double time; times >> time;) seconds->push_back(time);
    return answers;
}

std::vector<Answer> ask(const Programs &, const Shapes &shapes, const std::vector<Data> &params, const Draws &draws) {
    return ask_model(shapes, params, draws, 0, nullptr);
}

#else

struct Programs {
    Program candidate, reference, truth;

    Programs(const std::string &file)
        : candidate(file), reference(own_folder() + "/reference.so"), truth(own_folder() + "/truth.so") {}
};

std::vector<Answer> ask(const Programs &programs, const Shapes &shapes, const std::vector<Data> &params, const Draws &draws) {
    Session reference("reference", programs.reference, shapes, false, params);
    Session truth("truth", programs.truth, shapes, true, params);
    std::vector<Answer> answers;
    bool ignored;
    for (const std::vector<Data> &inputs : draws) {
        answers.push_back(Answer{truth.call(inputs, &ignored), reference.call(inputs, &ignored)});
    }
    return answers;
}

#endif

// Checks one shape; says whether everything is right.
bool check(const Programs &programs, const Shapes &shapes, Random &random) {
    const std::vector<Data> params = draw_all(shapes.params, random);
    Draws draws;
    for (int number = 0; number < DRAWS; ++number) draws.push_back(draw_all(shapes.inputs, random));
    const std::vector<Answer> answers = ask(programs, shapes, params, draws);
    Session candidate("candidate", programs.candidate, shapes, false, params);
    bool is_right = true;
    int asked = 0;
    for (int number = 1; number <= DRAWS; ++number) {
        const auto &[expected, usual] = answers[size_t(number - 1)];
        bool kept;
        const std::vector<Data> outputs = candidate.call(draws[size_t(number - 1)], &kept);
        if (!is_finite(expected) || !is_finite(usual)) {
            std::printf("%s, draw %d: the reference has no finite answer, so nothing is asked\n", shapes.name, number);
            continue;
        }
        ++asked;
        const Found own = compare(usual, expected, shapes.outputs);
        const Found found = compare(outputs, expected, shapes.outputs);
        const double allowed =
            own.largest > 0.0
                ? std::min(1.0, std::max(own.largest, SMALLEST_REFERENCE_ERROR) * contract::REFERENCE_ERROR_FACTOR)
                : 1.0;
        const bool passes = found.wrong == 0 && found.largest <= allowed && kept;
        is_right = is_right && passes;
        std::printf("%s, draw %d: %s; %zu of %zu elements outside of the tolerance, largest error %.3g of it "
                    "(%.3g allowed, the reference's own %.3g)\n",
                    shapes.name, number, passes ? "right" : "WRONG", found.wrong, found.elements, found.largest, allowed,
                    own.largest);
        if (!passes) std::printf("  worst: %s%s\n", found.worst.c_str(), kept ? "" : "; it changed its inputs or its weights");
    }
    if (asked == 0) fail(std::string(shapes.name) + ": the reference has no finite answer to anything, so nothing was checked");
    return is_right;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2.0;
}

// A program whose calls are timed.
class Timed {
  public:
    Timed(const char *name, const Program &program, const Shapes &shapes, const std::vector<Data> &params,
          const std::vector<Data> &inputs)
        : session_(name, program, shapes, false, params) {
        bool ignored;
        (void)session_.call(inputs, &ignored);
        const double once = std::max(session_.seconds(1), 1e-9);
        calls_ = int(std::min(1e5, std::max(1.0, std::ceil(SAMPLE_S / once))));
    }

    void sample() { times_.push_back(session_.seconds(calls_) / calls_); }
    double seconds() const { return median(times_); }

  private:
    Session session_;
    int calls_;
    std::vector<double> times_;
};

// Times candidate and reference at the first shape.
void time_both(const Programs &programs, int samples, Random &random) {
    const Shapes &shapes = contract::SHAPES.front();
    const std::vector<Data> params = draw_all(shapes.params, random);
    const std::vector<Data> inputs = draw_all(shapes.inputs, random);
    Timed candidate("candidate", programs.candidate, shapes, params, inputs);
#ifdef NIGHTSHIFT_MODEL
    std::vector<double> of_model;
    (void)ask_model(shapes, params, {inputs}, samples, &of_model);
    for (int sample = 0; sample < samples; ++sample) candidate.sample();
    if (of_model.empty()) fail("the model was not timed");
    const double slow = median(of_model);
    const char *how = "the model in a process of its own";
#else
    Timed reference("reference", programs.reference, shapes, params, inputs);
    for (int sample = 0; sample < samples; ++sample) {
        for (int turn = 0; turn < 2; ++turn) {
            if ((sample + turn) % 2 == 0) candidate.sample();
            else reference.sample();
        }
    }
    const double slow = reference.seconds();
    const char *how = "taken in turn";
#endif
    const double fast = candidate.seconds();
    std::printf("candidate %.6g ms, reference %.6g ms: %.3g times as fast (medians of %d samples, %s)\n", fast * 1e3, slow * 1e3,
                slow / fast, samples, how);
}

// A whole number that is not negative.
uint64_t number_of(const std::string &name, const char *value) {
    char *end = nullptr;
    const uint64_t number = std::strtoull(value, &end, 10);
    if (*value < '0' || *value > '9' || *end != '\0') fail(name + ": `" + value + "` is no whole number; " + USAGE);
    return number;
}

int compare_all(int argc, char **argv) {
    std::string candidate = own_folder() + "/candidate.so";
    uint64_t seed = 1;
    int samples = 21;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        if (name == "--help") {
            std::printf("%s\n", USAGE);
            return 0;
        }
        if (i + 1 == argc) fail(USAGE);
        const char *value = argv[++i];
        if (name == "--seed") seed = number_of(name, value);
        else if (name == "--samples") samples = int(std::min<uint64_t>(number_of(name, value), 100'000));
        // Without a slash, libraries would be searched for elsewhere.
        else if (name == "--candidate") candidate = std::strchr(value, '/') == nullptr ? std::string("./") + value : value;
        else fail(USAGE);
    }
    const Programs programs(candidate);
    Random random(seed);
    bool is_right = true;
    for (const Shapes &shapes : contract::SHAPES) is_right = check(programs, shapes, random) && is_right;
    if (samples > 0) time_both(programs, samples, random);
    std::printf("%s: %s\n", contract::TASK, is_right ? "right" : "WRONG");
    return is_right ? 0 : 1;
}

}  // namespace

int main(int argc, char **argv) {
    try {
        return compare_all(argc, argv);
    } catch (const std::exception &error) {
        // What was said before comes before.
        std::fflush(stdout);
        std::fprintf(stderr, "error: %s\n", error.what());
        return 2;
    }
}
