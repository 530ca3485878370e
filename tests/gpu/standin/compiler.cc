// A stand-in for NVRTC: it compiles kernel texts for the host, by g++ and with host_kernel.h, which
// lies beside it. The cubin is the path of the shared library that came about; the text itself stays
// beside that, as kernel-NUMBER.cu, for who compiles it in earnest. The folder STANDIN_KERNELS takes
// them, or that of this library. With STANDIN_RUNS=0 nothing is compiled and nothing runs: launches
// are counted.

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

namespace {

struct Program {
  std::string source, log, library;
};

std::string folder_of_this() {
  Dl_info info;
  dladdr(reinterpret_cast<void*>(folder_of_this), &info);
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The shared library of a text; made once, whoever asks, and put in place whole.
int compile(Program* program) {
  const std::string here = folder_of_this(), header = content_of(here + "/host_kernel.h");
  const char* asked = std::getenv("STANDIN_KERNELS");
  char name[40];
  std::snprintf(name, sizeof name, "/kernel-%016zx",
                std::hash<std::string>()(header + program->source));
  const std::string made = (asked != nullptr ? asked : here) + name, own = made + "." + std::to_string(getpid());
  program->library = made + ".so";
  if (access(program->library.c_str(), R_OK) == 0) return 0;
  std::ofstream(own + ".cu") << program->source;
  std::ofstream(own + ".cc") << "#include \"" << here << "/host_kernel.h\"\n"
                             << "const standin::Host* standin_host;\n"
                             << program->source;
  const char* extra = std::getenv("STANDIN_CXXFLAGS");
  const std::string command = "g++ -std=c++17 -O1 -ffp-contract=off -shared -fPIC -Wall -Wextra "
                              "-Wno-unknown-pragmas -Wno-unused -Wno-sign-compare " +
                              std::string(extra != nullptr ? extra : "") + " -o " + own + ".so " +
                              own + ".cc 2> " + own + ".log";
  const int code = std::system(command.c_str());
  program->log = content_of(own + ".log");
  std::remove((own + ".log").c_str());
  if (code != 0 || !program->log.empty()) return 6;  // a warning too
  std::remove((own + ".cc").c_str());
  std::rename((own + ".cu").c_str(), (made + ".cu").c_str());
  return std::rename((own + ".so").c_str(), program->library.c_str()) == 0 ? 0 : 6;
}

}  // namespace

extern "C" {

int nvrtcCreateProgram(Program** program, const char* source, const char*, int, const char* const*,
                       const char* const*) {
  *program = new Program{source, "", ""};
  return 0;
}
int nvrtcCompileProgram(Program* program, int, const char* const*) {
  const char* runs = std::getenv("STANDIN_RUNS");
  return runs != nullptr && *runs == '0' ? 0 : compile(program);
}
int nvrtcGetCUBINSize(Program* program, size_t* size) {
  *size = program->library.size() + 1;
  return 0;
}
int nvrtcGetCUBIN(Program* program, char* cubin) {
  std::memcpy(cubin, program->library.c_str(), program->library.size() + 1);
  return 0;
}
int nvrtcGetProgramLogSize(Program* program, size_t* size) {
  *size = program->log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(Program* program, char* log) {
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return 0;
}
int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return 0;
}

}  // extern "C"
