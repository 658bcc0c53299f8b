// Any text as the manifest of a figure: what is read back from its own JSON is the same, or an
// Error. Labels of it go through every text format.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "analysis/plot/rich_text.hpp"
#include "core/base/error.hpp"
#include "notebooks_export/figure_manifest.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvscope;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const FigureManifest manifest = manifest_from_text(text, "fuzz");
    const std::string once = manifest_to_json(manifest).dump();
    const std::string twice = manifest_to_json(manifest_from_text(once, "fuzz")).dump();
    if (once != twice) std::abort();
  } catch (const Error&) {
  }
  const std::string tex = plot::tex_text(text);
  if (tex.find("^^") != std::string::npos) std::abort();
  (void)plot::plain_text(text);
  return 0;
}
