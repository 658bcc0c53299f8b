// kvscope info: what a trace, a result, a model or a folder of units holds.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "analysis/cli/command.hpp"
#include "analysis/cli/common_options.hpp"
#include "analysis/cli/describe_model.hpp"
#include "analysis/cli/info_describe.hpp"
#include "analysis/cli/info_many.hpp"
#include "analysis/cli/model_source.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/cli/unit_status.hpp"
#include "analysis/units/unit_folder.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"
#include "core/model/gguf/gguf_checkpoint.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

// Numbers of a list, in ranges: "0-7", "0, 3-5".
std::string list_text(const Json& list) {
  std::string out;
  for (std::size_t i = 0; i < list.size();) {
    std::size_t last = i;
    while (last + 1 < list.size() && list[last + 1].get<Index>() == list[last].get<Index>() + 1)
      ++last;
    out += out.empty() ? "" : ",";
    out += last == i ? list[i].dump() : fmt::format("{}-{}", list[i].dump(), list[last].dump());
    i = last + 1;
  }
  return out;
}

std::string value_text(const std::string& key, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (key.ends_with("_bytes")) return bytes_text(value.get<double>());
  if (key == "window") {
    const bool any =
        std::any_of(value.begin(), value.end(), [](const Json& w) { return !w.is_null(); });
    return any ? value.dump() : "none";
  }
  if (key == "rows" && value.is_array())
    return fmt::format("{}:{}", value[0].dump(), value[1].dump());
  const auto is_whole = [](const Json& item) { return item.is_number_integer(); };
  if (value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), is_whole)) {
    return list_text(value);
  }
  if (value.is_array()) {
    std::string out;
    for (const auto& item : value)
      out += (out.empty() ? "" : ", ") + (item.is_string() ? item.get<std::string>() : item.dump());
    return out.empty() ? "none" : out;
  }
  return value.dump();
}

/// Line breaks of a file's strings must not look like lines of ours.
std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) line += c == '\n' ? std::string("\\n") : std::string(1, c);
  return line;
}

void add_lines(std::string& out, const Json& json, const std::string& prefix) {
  for (const auto& [key, value] : json.items()) {
    const std::string name = one_line(prefix + key);
    if (value.is_object()) {
      add_lines(out, value, name + ".");
    } else if (key == "inputs" && value.is_array() && !value.empty()) {
      for (const Json& input : value) {
        std::string words;
        for (const auto& [part, text] : input.items())
          words += (words.empty() ? "" : " ") + value_text(part, text);
        out += fmt::format("{:<22} {}\n", "input", one_line(words));
      }
    } else if (value.is_array() && !value.empty() && value[0].is_object()) {
      out += fmt::format("{:<22} {} entries (--json shows them)\n", name, value.size());
    } else {
      out += fmt::format("{:<22} {}\n", name, one_line(value_text(key, value)));
    }
  }
}

class InfoCommand final : public Command {
 public:
  std::string name() const override { return "info"; }
  std::string summary() const override {
    return "what a trace, a result, a model, or a folder of recordings or units holds";
  }
  std::vector<Example> examples() const override {
    return {{"kvscope info trace.h5",
             "shapes, captures and provenance of a trace (also of a .part file)"},
            {"kvscope info verifier --json",
             "config and parameter count of a checkpoint, here an embedded one"},
            {"kvscope info SmolLM2-135M-Instruct.Q4_1.gguf",
             "metadata, types of weights and shapes of a GGUF file"},
            {"kvscope info recordings", "a folder of traces: a line for each, and sums"},
            {"kvscope info sweep.csv.units",
             "of a folder of units: what is done, missing and failed, and the time left"}};
  }
  void declare(OptionSet& options) override {
    options
        .positional("WHAT",
                    "a trace, a result file, a folder of traces or of units, or a model (as "
                    "--model takes it)",
                    what_,
                    /*required=*/true)
        .kind = ValueKind::file;
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string&) override {
    const Json json = describe();
    if (json_) {
      print_json(json);
    } else if (json.value("what", std::string()) == "recordings") {
      print(folder_text(json));
    } else {
      std::string out;
      add_lines(out, json, "");
      print(out);
    }
    return kOk;
  }

 private:
  Json describe() const {
    if (!fs::exists(what_) && names_model(what_)) return describe_model(model_dir(what_));
    if (is_unit_folder(what_)) return unit_status(what_);
    if (fs::is_directory(what_) && !fs::exists(fs::path(what_) / "config.json") &&
        !gguf_file_of(what_)) {
      const std::vector<fs::path> files = recordings_in(what_);
      if (!files.empty()) return describe_folder(what_, files);
    }
    if (fs::is_directory(what_) || gguf_file_of(what_)) return describe_model(what_);
    return describe_file(what_);
  }

  std::string what_;
  bool json_ = false;
};

}  // namespace

KVSCOPE_COMMAND(120, InfoCommand)

}  // namespace kvscope::cli
