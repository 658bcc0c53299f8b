// kvscope figure: a figure from a result, in every format a paper needs.
#include <algorithm>
#include <cctype>
#include <filesystem>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "core/base/json.hpp"
#include "core/base/lists.hpp"
#include "core/base/new_file.hpp"
#include "core/base/read_files.hpp"
#include "notebooks_export/figure_manifest.hpp"
#include "notebooks_export/open_result.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

/// Where the files go: a folder, or one file whose ending is the format.
struct Target {
  fs::path folder;
  std::string stem;
  std::optional<FigureFormat> format;
};

Target target_of(const std::optional<fs::path>& out, const std::string& figure) {
  if (!out) return {".", figure, std::nullopt};
  std::string ending = out->extension().string();
  if (!ending.empty()) ending.erase(0, 1);
  if (const auto format = enum_from_name<FigureFormat>(ending)) {
    const fs::path folder = out->has_parent_path() ? out->parent_path() : fs::path(".");
    return {folder, out->stem().string(), format};
  }
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr std::string_view kOthers[] = {"svg",  "pdf", "png",  "tex",  "apng", "bmp", "csv",
                                          "eps",  "gif", "html", "jpeg", "jpg",  "md",  "json",
                                          "tiff", "ps",  "txt",  "webp", "h5"};
  std::error_code ignored;
  if (std::ranges::find(kOthers, ending) != std::end(kOthers) && !fs::is_directory(*out, ignored))
    throw UsageError("--out: a figure is svg, pdf, png or tex, or a folder of all, found {}",
                     out->string());
  return {*out, figure, std::nullopt};
}

std::vector<FigureFormat> parse_formats(const std::string& text) {
  std::vector<FigureFormat> formats;
  for (const std::string& word : split_words(text, ',')) {
    FigureFormat format{};
    parse_field(Field{"--format", ""}, word, format);
    if (std::ranges::find(formats, format) == formats.end()) formats.push_back(format);
  }
  return formats;
}

class FigureCommand final : public Command {
 public:
  CommandCard card() const override {
    return {"figure",
            "draw a figure from a result, ready for a paper",
            "Writes NAME.svg, .pdf, .png and .tex (pgfplots), the plotted numbers as NAME.csv, and "
            "NAME.json, from which kvscope reproduce draws the figure again. The same result gives "
            "the same bytes. Nothing is written unless everything is. kvscope figures lists the "
            "figures and the commands that make what they need.",
            {{"kvscope figure budget sweep.h5 --out figures",
              "attention mass, recall and error of all methods, in every format"},
             {"kvscope figure budget sweep.csv --metric mass --venue acl --out mass.pdf",
              "one panel, as wide as a column of an ACL paper"},
             {"kvscope figure layer-map map.h5 --theme dark --venue slide --format svg",
              "for a talk"}}};
  }
  void declare(OptionSet& options) override {
    OptionSpec& name = options.positional(
        "NAME", "the figure; kvscope figures says what each shows", figure_, /*required=*/true);
    for (const FigureKind& kind : figure_kinds()) name.choices.push_back(kind.name);
    options
        .positional("RESULT", "what it is drawn from, in the order that kvscope figures says",
                    results_, /*required=*/true)
        .of(kinds_of_results());
    options
        .add("out", "DIR|FILE",
             "folder for the files, or one file that ends in .svg, .pdf, .png or .tex [.]", out_)
        .short_name = 'o';
    options.add("format", "LIST", "what to write: svg, pdf, png, tex", formats_);
    options.fields(figure_options_);
    options.fields(render_);
    options.flag("overwrite", "replace existing files", overwrite_);
    declare_json(options, json_);
  }

  int run(const OptionSet& options, const std::string& command_line) override {
    const Target target = target_of(out_, figure_);
    if (target.format && options.given("format")) {
      throw UsageError(
          "--out names one file, so --format has nothing to say; leave one of them out");
    }
    FigureManifest asked{.figure = figure_,
                         .stem = target.stem,
                         .options = figure_options_,
                         .render = render_,
                         .formats = parse_formats(formats_),
                         .command = command_line};
    if (target.format) asked.formats = {*target.format};
    for (const fs::path& file : results_) asked.inputs.push_back({.file = file.string()});
    as_usage([&] { return find_figure_kind(figure_); });  // before results are read
    FigureOutcome outcome = draw_figure_of(std::move(asked));
    for (ManifestInput& input : outcome.manifest.inputs) {
      input.file = fs::path(fs::absolute(input.file).lexically_normal())
                       .lexically_proximate(fs::absolute(target.folder).lexically_normal())
                       .generic_string();
    }
    const Json manifest = manifest_to_json(outcome.manifest);
    outcome.files.push_back({target.stem + ".json", json_text(manifest, 1) + "\n"});
    // All of them before the first is written.
    for (const OutputFile& file : outcome.files) refuse_read_file(target.folder / file.name);
    write_output_files(target.folder, outcome.files, overwrite_);
    if (json_) {
      print_json(manifest);
      return kOk;
    }
    for (const std::string& sentence : outcome.manifest.caption) note(sentence);
    for (const std::string& sentence : outcome.notes) note("kvscope: " + sentence);
    std::string paths;
    for (const OutputFile& file : outcome.files)
      paths += (target.folder / file.name).lexically_normal().string() + "\n";
    print_data(paths);
    return kOk;
  }

 private:
  std::string figure_;
  std::vector<fs::path> results_;
  std::optional<fs::path> out_;
  std::string formats_ = "svg,pdf,png,tex";
  FigureOptions figure_options_;
  RenderOptions render_;
  bool overwrite_ = false;
  bool json_ = false;
};

}  // namespace

KVSCOPE_COMMAND(620, FigureCommand)

}  // namespace kvscope::cli
