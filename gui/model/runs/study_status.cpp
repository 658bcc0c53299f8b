#include "gui/model/runs/study_status.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "gui/model/runs/child_program.hpp"

namespace kvscope::gui {

namespace {

using Json = nlohmann::json;

/// More are counted, not named.
constexpr int kMostFailures = 200;
constexpr const char* kWhere = "kvscope study status";

std::optional<double> number_or_none(const Json& json, const char* name) {
  const Json& value = json.at(name);
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

StudyTaskStatus counts_of(const Json& json, std::string task) {
  StudyTaskStatus counts;
  counts.task = std::move(task);
  json.at("items").get_to(counts.items);
  json.at("known").get_to(counts.known);
  json.at("failed").get_to(counts.failed);
  json.at("to_do").get_to(counts.to_do);
  json.at("jobs").get_to(counts.jobs);
  counts.seconds = number_or_none(json, "seconds");
  return counts;
}

std::string item_of(const Json& failed) {
  const auto word = [&](const char* name) { return failed.at(name).get<std::string>(); };
  std::string item = word("task");
  if (!word("method").empty()) item += fmt::format(": {} {}", word("method"), word("budget"));
  item += " on ";
  if (!word("model").empty()) item += word("model") + ", ";
  item += word("text");
  return word("protocol").empty() ? item : item + ", " + word("protocol");
}

}  // namespace

std::size_t StudyStatus::bytes() const {
  std::size_t n = sizeof *this;
  for (const StudyFailure& failure : failures)
    n += sizeof failure + failure.item.size() + failure.sentence.size();
  return n;
}

StudyStatus read_study_status(const std::string& text) {
  const Json json = parse_json(text, kWhere);
  try {
    StudyStatus status;
    json.at("study").get_to(status.study);
    json.at("store").get_to(status.store);
    if (!json.at("writer").is_null()) json.at("writer").get_to(status.writer);
    status.all = counts_of(json, "all");
    for (const Json& task : json.at("tasks"))
      status.tasks.push_back(counts_of(task, task.at("task").get<std::string>()));
    json.at("running").get_to(status.running);
    status.jobs_per_hour = number_or_none(json, "jobs_per_hour");
    status.seconds_left = number_or_none(json, "seconds_left");
    for (const Json& failed : json.at("failed_items"))
      status.failures.push_back({item_of(failed), failed.at("failure").get<std::string>()});
    return status;
  } catch (const Json::exception& error) {
    throw FormatError("{}: expected what this version prints, found something else: {}", kWhere,
                      error.what());
  }
}

StudyStatus ask_study_status(const std::string& program, const std::filesystem::path& study,
                             std::stop_token stop) {
  std::string said;
  const ProgramEnd end = run_program(
      {program, "study", "status", "--json", "--failures", std::to_string(kMostFailures), "--",
       study.string()},
      [&](const std::string& line) {
        if (!line.empty()) said = sentence_of(line);
      },
      stop);
  if (end.code != 0)
    throw IoError("{}",
                  said.empty() ? fmt::format("study status ended with code {}", end.code) : said);
  return read_study_status(end.out);
}

}  // namespace kvscope::gui
