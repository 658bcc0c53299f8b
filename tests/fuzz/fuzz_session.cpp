// Fuzzes what the explorer reads of a saved session: selection, sliders, ticked methods, layout,
// settings. Files it names are not opened: they would be others' formats. Errors of ours are fine,
// crashes are not.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "gui/model/session/arrangement.hpp"
#include "gui/model/session/session.hpp"
#include "gui/model/session/settings.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvscope;
  using namespace kvscope::gui;
  static const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("fuzz-session-{}.json", ::getpid());
  static Cache cache(1 << 20);
  static JobRunner jobs({}, 1);
  const std::string text(reinterpret_cast<const char*>(data), size);
  nlohmann::ordered_json json;
  try {
    json = parse_ordered_json(text, "fuzz");
  } catch (const Error&) {
    return 0;
  }
  if (json.is_object()) {
    json.erase("traces");
    json.erase("results");
  }
  try {
    Session session({jobs, cache}, {});
    session.apply(json, ".");
    (void)session.to_json(".");
  } catch (const Error&) {
  }
  try {
    Place place =
        place_from_json(json.is_object() && json.contains("layout") ? json["layout"] : json);
    (void)arrange(place, {0, 0, 1600, 900}, 5, 140);
    (void)to_json(place);
  } catch (const Error&) {
  }
  try {
    std::ofstream(file, std::ios::trunc | std::ios::binary) << text;
    save_settings(load_settings(file), file);
  } catch (const Error&) {
  }
  return 0;
}
