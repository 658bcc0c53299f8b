#include "analysis/cli/runs/run_inside.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "analysis/cli/frame/host.hpp"
#include "analysis/cli/frame/program.hpp"
#include "analysis/options/exit_code.hpp"
#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::cli {

namespace {

constexpr std::size_t kMostPictureBytes = std::size_t{64} << 20U;

class OutputCatcher final : public Host {
 public:
  OutputCatcher(const ProgressFn& progress, const std::stop_token& stop)
      : progress_(progress), stop_(stop) {}
  void print(std::string_view text) override { outcome.printed += text; }
  void note(std::string_view line) override { outcome.last_note = line; }
  void report(const Progress& progress) override {
    if (progress_) progress_(progress);
  }
  std::stop_token stop_token() const override { return stop_; }
  void ended_by(const std::exception& error) override {
    outcome.is_system = is_of_system(error);
    outcome.is_write_refused = dynamic_cast<const WriteRefused*>(&error) != nullptr;
  }
  CommandOutcome outcome;

 private:
  const ProgressFn& progress_;
  const std::stop_token& stop_;
};

}  // namespace

std::string CommandOutcome::sentence() const {
  constexpr std::string_view kOurs = "kvscope: ";
  if (last_note.empty()) return fmt::format("it ended with code {}", code);
  return last_note.starts_with(kOurs) ? last_note.substr(kOurs.size()) : last_note;
}

bool is_of_system(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error) != nullptr) {
    return dynamic_cast<const IoError*>(&error) != nullptr &&
           dynamic_cast<const MissingFile*>(&error) == nullptr;
  }
  return dynamic_cast<const UsageError*>(&error) == nullptr;
}

CommandOutcome run_inside(const std::vector<std::string>& words, const ProgressFn& progress,
                          const std::stop_token& stop) {
  OutputCatcher catcher(progress, stop);
  const HostScope scope(catcher);
  catcher.outcome.code = run_program(words);
  return catcher.outcome;
}

papers::DrawnPicture drawn_inside(const std::vector<std::string>& words,
                                  const std::filesystem::path& folder, const std::string& place,
                                  bool overwrite, const std::stop_token& stop) {
  const auto make = [&](const char* format, const std::string& out) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--format", format, "--out", (folder / out).string()});
    if (overwrite) all.emplace_back("--overwrite");
    const CommandOutcome outcome = run_inside(all, {}, stop);
    if (stop.stop_requested()) throw Interrupted("stopped; the same command starts again");
    if (outcome.is_system) throw IoError(outcome.sentence());
    if (outcome.code != kOk) throw ConfigError(outcome.sentence());
  };
  const auto text_of = [&](const std::string& file) {
    return read_regular_file(folder / file, kMostPictureBytes);
  };
  papers::DrawnPicture picture;
  if (words.front() == "table") {
    make("markdown", place + ".md");
    make("tabular", place + ".tex");
    picture.markdown = text_of(place + ".md");
    picture.tex = place + ".tex";
    return picture;
  }
  make("svg,pdf", place);
  const std::string stem = place + "/" + words.at(1);
  picture.svg = text_of(stem + ".svg");
  picture.pdf = stem + ".pdf";
  const nlohmann::json manifest = parse_json(text_of(stem + ".json"), stem + ".json");
  for (const auto& sentence : manifest.value("caption", nlohmann::json::array())) {
    if (sentence.is_string())
      picture.caption += (picture.caption.empty() ? "" : " ") + sentence.get<std::string>();
  }
  return picture;
}

}  // namespace kvscope::cli
