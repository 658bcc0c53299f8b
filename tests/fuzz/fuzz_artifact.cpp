// Any bytes as a file of `kvscope fit`, and any JSON as what such a file with a right checksum says
// that a method learned: a selector that can be asked, or an Error.
//
// The first byte says which method, and which of the two.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/selectors/artifact.hpp"
#include "core/selectors/learned.hpp"
#include "core/selectors/registry.hpp"
#include "core/sim/protocol.hpp"

namespace {

using namespace kvscope;

struct Method {
  const char* name;
  const char* option;
};
constexpr Method kMethods[] = {{"kascade", "map"},
                               {"duoattention", "gates"},
                               {"doublesparsity", "channels"},
                               {"loki", "directions"}};
constexpr Index kShapeLayers = 4;

/// A file in memory with a name.
const std::string& file_with(std::string_view bytes) {
  static const int fd = ::memfd_create("artifact", MFD_CLOEXEC);
  static const std::string name = "/proc/self/fd/" + std::to_string(fd);
  if (fd < 0 || ::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    std::abort();
  }
  return name;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Method& method = kMethods[data[0] % std::size(kMethods)];
  const bool as_values = (data[0] / std::size(kMethods)) % 2 != 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  TraceInfo info;  // of the text that was learned from
  info.n_layers = kShapeLayers;
  info.n_q = 4;
  info.n_kv = 2;
  info.d_head = 4;
  try {
    std::string file;
    if (as_values) {
      Learned learned;
      learned.values = parse_ordered_json(text, "fuzz");
      file = file_with(artifact_text(method.name, learned, info));
      (void)read_artifact(file, method.name);  // what we write ourselves has to be read
    } else {
      file = file_with(text);
    }
    AttentionShape shape;
    shape.n_layers = info.n_layers;
    shape.n_q = info.n_q;
    shape.n_kv = info.n_kv;
    shape.d_head = info.d_head;
    shape.max_tokens = 64;
    const std::string spec = std::string(method.name) + ":" + method.option + "=" + file;
    const SelectorRun run(selector_registry().make(spec), shape, {Budget::parse("tokens=4")});
  } catch (const Error&) {
  }
  return 0;
}
