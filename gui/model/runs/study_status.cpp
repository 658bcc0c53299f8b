#include "gui/model/runs/study_status.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "gui/model/runs/child_program.hpp"

namespace kvscope::gui {

namespace {

/// More are counted, not named.
constexpr const char* kMostFailures = "200";
constexpr const char* kStatusCommand = "kvscope study status";

std::optional<double> number_or_none(const nlohmann::json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

StudyTaskStatus task_status(const nlohmann::json& json, std::string task) {
  StudyTaskStatus status;
  status.task = std::move(task);
  json.at("items").get_to(status.items);
  json.at("known").get_to(status.known);
  json.at("failed").get_to(status.failed);
  json.at("to_do").get_to(status.to_do);
  json.at("jobs").get_to(status.jobs);
  status.seconds = number_or_none(json.at("seconds"));
  return status;
}

std::string item_words(const nlohmann::json& item) {
  const auto word = [&](const char* name) { return item.at(name).get<std::string>(); };
  std::string words = word("task");
  if (!word("method").empty()) words += fmt::format(": {} {}", word("method"), word("budget"));
  words += " on ";
  if (!word("model").empty()) words += word("model") + ", ";
  words += word("text");
  return word("protocol").empty() ? words : words + ", " + word("protocol");
}

}  // namespace

std::size_t StudyStatus::bytes() const {
  std::size_t n = sizeof *this;
  for (const StudyFailure& failure : failures)
    n += sizeof failure + failure.item.size() + failure.sentence.size();
  return n;
}

StudyStatus read_study_status(const std::string& text) {
  const nlohmann::json json = parse_json(text, kStatusCommand);
  try {
    StudyStatus status;
    json.at("study").get_to(status.study);
    json.at("store").get_to(status.store);
    status.all = task_status(json, "all");
    for (const nlohmann::json& task : json.at("tasks"))
      status.tasks.push_back(task_status(task, task.at("task").get<std::string>()));
    json.at("running").get_to(status.running);
    status.items_per_hour = number_or_none(json.at("items_per_hour"));
    status.seconds_left = number_or_none(json.at("seconds_left"));
    for (const nlohmann::json& failed : json.at("failed_items"))
      status.failures.push_back({item_words(failed), failed.at("failure").get<std::string>()});
    return status;
  } catch (const nlohmann::json::exception& error) {
    throw FormatError("{}: expected what this version prints, found something else: {}",
                      kStatusCommand, error.what());
  }
}

StudyStatus ask_study_status(const std::string& program, const std::filesystem::path& study,
                             JobContext& job) {
  return read_study_status(answer_of_program(
      {program, "study", "status", "--json", "--failures", kMostFailures, "--", study.string()},
      job));
}

}  // namespace kvscope::gui
