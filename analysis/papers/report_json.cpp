#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "analysis/papers/report.hpp"
#include "analysis/statistics.hpp"

namespace kvscope::papers {

namespace {

using Json = nlohmann::ordered_json;

std::string unit_word(Unit unit) {
  switch (unit) {
    case Unit::percent:
      return "share";
    case Unit::factor:
      return "factor";
    case Unit::tokens:
      return "tokens";
    case Unit::number:
      break;
  }
  return "1";
}

Json value_json(const Value& value, const Measured& measured) {
  return {{"key", value.key},
          {"label", value.label},
          {"value", json_number(measured.value)},
          {"low", json_number(measured.low)},
          {"high", json_number(measured.high)},
          {"interval", measured.interval},
          {"unit", unit_word(value.unit)},
          {"run", value.run},
          {"column", value.column},
          {"where", value.where},
          {"missing", measured.missing}};
}

}  // namespace

std::string section_of(const Item& item) {
  return item.is_error ? "Errors found in the papers" : paper_name(item.paper);
}

std::string note_of(const ItemOutcome& outcome) {
  const std::string& note = outcome.item->note;
  return note + (note.empty() || outcome.remark.empty() ? "" : " ") + outcome.remark;
}

std::string tally(const std::vector<ItemOutcome>& outcomes, bool errors) {
  std::array<int, 5> counts{};
  for (const ItemOutcome& outcome : outcomes) {
    if (outcome.item->is_error == errors)
      ++counts[static_cast<std::size_t>(outcome.judgement.verdict)];
  }
  const std::string not_run = counts[4] == 0 ? "" : fmt::format(", {} were not run", counts[4]);
  return fmt::format("{} hold, {} hold in form, {} do not hold, {} cannot be tested{}", counts[0],
                     counts[1], counts[2], counts[3], not_run);
}

Json report_json(const ReportHead& head, const std::vector<ItemOutcome>& outcomes) {
  Json json = {{"format", "kvscope-papers"},
               {"version", 1},
               {"model", head.model},
               {"draft", head.draft},
               {"quick", head.quick},
               {"writer", head.writer},
               {"command_line", head.command_line},
               {"seconds", json_number(head.seconds)},
               {"claims", tally(outcomes, false)},
               {"errors", tally(outcomes, true)},
               {"items", Json::array()}};
  for (const ItemOutcome& outcome : outcomes) {
    const Item& item = *outcome.item;
    const bool has_value = !item.values.empty();
    Json values = Json::array();
    for (std::size_t i = 0; i < item.values.size(); ++i)
      values.push_back(value_json(item.values[i], outcome.measured[i]));
    Json pictures = Json::array();
    for (const DrawnPicture& picture : outcome.pictures) {
      pictures.push_back({{"command", picture.command},
                          {"file", picture.pdf.empty() ? picture.tex : picture.pdf},
                          {"caption", picture.caption},
                          {"failed", picture.failed}});
    }
    json["items"].push_back(
        {{"item", item.id},
         {"paper", paper_name(item.paper)},
         {"place", item.place},
         {"title", item.title},
         {"error", item.is_error},
         {"claim", item.claim},
         {"published", item.published},
         {"ours", has_value ? json_number(outcome.measured[0].value) : Json(nullptr)},
         {"low", has_value ? json_number(outcome.measured[0].low) : Json(nullptr)},
         {"high", has_value ? json_number(outcome.measured[0].high) : Json(nullptr)},
         {"unit", has_value ? unit_word(item.values[0].unit) : ""},
         {"verdict", verdict_word(outcome.judgement.verdict)},
         {"reason", outcome.judgement.reason},
         {"command", outcome.commands.empty() ? Json(nullptr) : Json(outcome.commands[0])},
         {"commands", outcome.commands},
         {"files", outcome.files},
         {"values", values},
         {"pictures", pictures},
         {"note", note_of(outcome)}});
  }
  return json;
}

}  // namespace kvscope::papers
