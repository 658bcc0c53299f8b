// kvscope reproduce: draws a figure again from its manifest and compares the bytes.

#include <algorithm>
#include <filesystem>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/output.hpp"
#include "core/base/error.hpp"
#include "core/base/file_kind.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/sibling_program.hpp"
#include "core/base/start_program.hpp"
#include "core/base/version.hpp"
#include "core/base/whole_file.hpp"
#include "notebooks_export/figure_manifest.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxManifestBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxFileBytes = std::size_t{4} << 30;

class ReproduceCommand final : public Command {
 public:
  CommandCard card() const override {
    return {"reproduce",
            "draw a figure again from its manifest and compare the bytes",
            "Reads the NAME.json that kvscope figure wrote, draws the figure from the same "
            "results with the same options, and compares with the files next to the manifest. "
            "Ends with exit code 5 if a result or a file differs. Writes nothing. Views that the "
            "explorer exported are drawn again by kvscope-explorer.",
            {{"kvscope reproduce figures/budget.json", "is the figure what its results say?"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("MANIFEST", "the .json next to a figure", manifest_, /*required=*/true);
    options.add("results", "DIR", "folder of the results, if they lie elsewhere by now", results_);
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string&) override {
    std::error_code ignored;
    const FileKind kind = kind_of_file(manifest_);
    const bool is_picture = kind == FileKind::svg || kind == FileKind::pdf ||
                            kind == FileKind::png || kind == FileKind::tex || kind == FileKind::csv;
    const fs::path beside = fs::path(manifest_).replace_extension(".json");
    if (is_picture && fs::exists(beside, ignored)) {
      throw UsageError("{}: {}; what it was made of stands in {}", manifest_.string(),
                       words_of(kind), beside.string());
    }
    const bool may_be_one = kind == FileKind::none || kind == FileKind::manifest ||
                            kind == FileKind::json || kind == FileKind::own_json;
    if (!may_be_one) {
      throw FormatError(
          "{}: expected the manifest of a figure, the .json that kvscope figure wrote beside it, "
          "found {}",
          manifest_.string(), words_of(kind));
    }
    const std::string text = read_whole_file(manifest_, kMaxManifestBytes);
    if (is_view(text)) return reproduce_view();
    const FigureManifest before = manifest_from_text(text, manifest_.string());
    const fs::path folder = folder_of_figure();
    FigureManifest asked = before;
    for (ManifestInput& input : asked.inputs) {
      const fs::path file = place_of(input);
      std::error_code unknown;
      if (!results_ && !fs::exists(file, unknown) && !unknown)
        throw IoError(
            "{}: no such file, which {} was drawn from; --results DIR says where it lies now",
            file.string(), manifest_.string());
      check_regular_file(file);  // the manifest may have come from anywhere
      input.file = file.string();
    }
    const FigureOutcome now = draw_figure_of(std::move(asked));

    bool all_same = true;
    Json rows = Json::array();
    const auto add = [&](const std::string& file, const std::string& verdict) {
      rows.push_back({{"file", file}, {"verdict", verdict}});
      all_same = all_same && verdict == "same";
    };
    for (std::size_t i = 0; i < before.inputs.size(); ++i) {
      const bool same = before.inputs[i].hash == now.manifest.inputs[i].hash;
      add(before.inputs[i].file, same ? "same" : "this result has changed since");
    }
    for (const OutputFile& file : now.files)
      add(file.name, compare(folder / file.name, file.bytes));
    for (const ManifestFile& file : before.files) {
      const bool drawn =
          std::ranges::any_of(now.files, [&](const OutputFile& f) { return f.name == file.name; });
      if (!drawn) add(file.name, "is not drawn any more");
    }
    if (json_) {
      print_json({{"figure", before.figure},
                  {"same", all_same},
                  {"writer_then", before.writer},
                  {"writer_now", writer_name()},
                  {"files", rows}});
    } else {
      print(filled_table(rows, {{"file", "{file}"}, {"verdict", "{verdict}"}}));
      if (before.writer != writer_name())
        note("drawn then by {}, now by {}", before.writer, writer_name());
    }
    return all_same ? kOk : kCheckFailed;
  }

 private:
  fs::path folder_of_figure() const {
    return manifest_.has_parent_path() ? manifest_.parent_path() : fs::path(".");
  }

  fs::path place_of(const ManifestInput& input) const {
    const fs::path file = input.file;
    if (results_) return *results_ / file.filename();
    return file.is_absolute() ? file : (folder_of_figure() / file).lexically_normal();
  }

  /// A manifest that the explorer wrote.
  static bool is_view(const std::string& text) {
    try {
      const nlohmann::json json = parse_json(text, "manifest");
      return json.is_object() && json.contains("format") && json["format"] == "kvscope-view";
    } catch (const Error&) {
      return false;  // the reader of figures' manifests says what is wrong
    }
  }

  /// The explorer draws its views itself, without a display; its table and its code are ours.
  int reproduce_view() const {
    const std::string program = sibling_program("kvscope-explorer");
    if (json_) throw UsageError("--json: views of the explorer are reported as a table only");
    pid_t child = 0;
    try {
      child = start_program({{program, "--reproduce", manifest_.string()}});
    } catch (const IoError& e) {
      throw IoError("{} is a view of the explorer, which draws it again, but {}",
                    manifest_.string(), e.what());
    }
    const int ended = wait_for_program(child);
    if (ended < 256 && ended != 127) return ended;
    throw IoError("{}: {} ended without a verdict", manifest_.string(), program);
  }

  static std::string compare(const fs::path& file, const std::string& bytes) {
    std::error_code error;
    if (!fs::exists(file, error)) return "is missing";
    return read_regular_file(file, kMaxFileBytes) == bytes ? "same" : "differs";
  }
  std::optional<fs::path> results_;
  fs::path manifest_;
  bool json_ = false;
};

}  // namespace

KVSCOPE_COMMAND(660, ReproduceCommand)

}  // namespace kvscope::cli
