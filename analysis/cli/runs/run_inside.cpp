#include "analysis/cli/runs/run_inside.hpp"

#include <fmt/format.h>

#include <string_view>

#include "analysis/cli/frame/host.hpp"
#include "analysis/cli/frame/program.hpp"
#include "analysis/options/exit_code.hpp"
#include "core/base/error.hpp"

namespace kvscope::cli {

namespace {

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
  void ended_by(const std::exception& error) override { outcome.is_system = is_of_system(error); }
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

}  // namespace kvscope::cli
