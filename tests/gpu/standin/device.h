// The device of the stand-in: what lies in its memory, what was asked of it, and the capture under
// way. All CUDA functions of the stand-in go through the one Device of the process.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace standin {

// Blocks of memory by their first byte.
class Blocks {
 public:
  void add(void* start, size_t bytes) { ends_[static_cast<char*>(start)] = bytes; }

  // The bytes of the block that starts there, which is forgotten; 0 if there is none.
  size_t remove(void* start) {
    auto found = ends_.find(static_cast<char*>(start));
    if (found == ends_.end()) return 0;
    size_t bytes = found->second;
    ends_.erase(found);
    return bytes;
  }

  bool holds(const void* address) const {
    auto* at = static_cast<const char*>(address);
    auto behind = ends_.upper_bound(const_cast<char*>(at));
    if (behind == ends_.begin()) return false;
    --behind;
    return at < behind->first + behind->second;
  }

 private:
  std::map<char*, size_t> ends_;
};

// What a captured graph does at each launch. Its kernels are counted and not run.
struct Graph {
  std::vector<std::function<void()>> work;
  long kernels = 0;
};

struct Copies {
  long count = 0;
  size_t bytes = 0;
  size_t pinned = 0;  // bytes of these from or to pinned host memory
  size_t beside = 0;  // bytes of these on streams that launch nothing
};

// Since the last reset.
struct Counters {
  long kernels = 0, graph_launches = 0, captures = 0, waits = 0, allocations = 0;
  long graph_kernels = 0;  // those of the graphs launched
  Copies to_device, to_host, on_device;
  std::map<std::string, long> launched;    // kernels and calls of libraries, by name
  std::map<std::string, long> violations;  // what a stream capture forbids
};

struct Device {
  static Device& get() {
    static Device* device = new Device;  // never freed: libraries call at the very end
    return *device;
  }

  bool captures_on(void* stream) const { return capture != nullptr && stream == capture_stream; }

  // True if something that no capture allows was called in one; it is counted.
  bool is_forbidden(const char* function) {
    if (capture == nullptr) return false;
    counters.violations[function]++;
    return true;
  }

  void launch(const std::string& name) {
    counters.launched[name]++;
    counters.kernels++;
    if (capture != nullptr) capture->kernels++;
  }

  // Work of a stream: recorded where the stream is captured, else done at once.
  void enqueue(void* stream, std::function<void()> work) {
    if (captures_on(stream)) {
      capture->work.push_back(std::move(work));
    } else {
      finish(stream);
      work();
    }
  }

  // Work that is done as late as CUDA allows: when somebody waits for the stream, or it goes on.
  void defer(void* stream, std::function<void()> work) { late[stream].push_back(std::move(work)); }

  void finish(void* stream) {
    auto found = late.find(stream);
    if (found == late.end()) return;
    for (auto& work : found->second) work();
    late.erase(found);
  }

  void finish_all() {
    while (!late.empty()) finish(late.begin()->first);
  }

  std::recursive_mutex mutex;
  Blocks memory, pinned;
  std::unordered_map<const void*, std::string> kernel_names;
  Counters counters;
  Graph* capture = nullptr;
  void* capture_stream = nullptr;
  std::map<void*, std::vector<std::function<void()>>> late;
  std::set<void*> launching;  // the streams on which a kernel was launched
  bool refuses_captures = false;
  std::string refused;  // how the names of work begin that fails
  int fault = 0;  // what the device answers since it stopped
  size_t used = 0, peak = 0;
  size_t size = number("STANDIN_BYTES", size_t{139} << 30);
  int devices = static_cast<int>(number("STANDIN_DEVICES", 1));

 private:
  static size_t number(const char* variable, size_t otherwise) {
    const char* text = std::getenv(variable);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
  }
};

}  // namespace standin

// For the other libraries of the stand-in, and for tests.
extern "C" {
int standin_launch(const char* name);  // 0, or an error of cuDNN where it is refused
void standin_enqueue(const char* name, void* stream, void (*work)(void*), void* data);
void standin_reset();
const char* standin_report();  // JSON, valid until the next call
void standin_resize(size_t bytes);
void standin_refuse_captures(int refuses);
void standin_refuse_work(const char* prefix);
void standin_stop(int error);  // answer every call so; 0 lets the device work again
}
