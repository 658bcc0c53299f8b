#include "gui/model/runs/child_program.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "analysis/base/analysis.hpp"
#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"

namespace kvscope::gui {

std::optional<Progress> progress_of(const std::string& line) {
  if (!line.starts_with("{\"stage\"")) return std::nullopt;
  try {
    const nlohmann::json json = parse_json(line, "progress");
    return Progress{json.at("stage").get<std::string>(), json.at("done").get<std::int64_t>(),
                    json.at("total").get<std::int64_t>(), json.at("unit").get<std::string>()};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::string sentence_of(std::string line) {
  if (line.starts_with("kvscope: ")) line.erase(0, 9);
  const std::size_t hint = line.rfind(" (see kvscope ");
  if (hint != std::string::npos) line.erase(hint);
  return line;
}

std::string answer_of_program(const std::vector<std::string>& words, JobContext& job) {
  std::string last;
  const ProgramEnd end = run_program(
      words,
      [&](const std::string& line) {
        if (const auto progress = progress_of(line)) {
          if (job.progress) job.progress(*progress);
        } else if (!line.empty()) {
          last = sentence_of(line);
        }
      },
      job.stop);
  check_stop(job.stop, words.at(1).c_str());
  if (end.code() != 0) {
    throw ConfigError(
        last.empty() ? fmt::format("kvscope {} ended with code {}", words[1], end.code()) : last);
  }
  return end.out;
}

}  // namespace kvscope::gui
