/* Kernel texts: what all begin with, and how operations and numbers are written in them. */
#ifndef FLOW2ONNX_NATIVE_CUDA_TEXT_H
#define FLOW2ONNX_NATIVE_CUDA_TEXT_H

#include <cstdint>
#include <string>
#include <vector>

namespace cuda {

extern const char *const PRELUDE;

/* A number as the text of a constant: every bit of a float stays. */
std::string text_of(int64_t number);
std::string text_of(float number);

/* The expression of an operation, of those that are no reductions; null for none. */
std::string expression(int64_t operation, const std::string &a, const std::string &b,
                       const std::string &c);

/* The type of a number in memory: float, or one of the halves of the prelude. */
const char *real_type(int64_t type);

/* An element of a tensor of numbers or truths, as a float. */
std::string element(const std::string &pointer, int64_t type, const std::string &index);

/* The statement that writes a float to an element of numbers or truths. */
std::string store(const std::string &pointer, int64_t type, const std::string &index,
                  const std::string &value);

/* Words that a kernel takes as its one argument: addresses and sizes. */
class Arguments {
  public:
    void add(const void *address) { words_.push_back(reinterpret_cast<uintptr_t>(address)); }
    void add(int64_t number) { words_.push_back(static_cast<uint64_t>(number)); }
    void set(size_t at, int64_t number) { words_[at] = static_cast<uint64_t>(number); }
    void resize(size_t words) { words_.resize(words); }
    size_t size() const { return words_.size(); }
    const void *data() const { return words_.data(); }

  private:
    std::vector<uint64_t> words_;
};

} // namespace cuda

#endif
