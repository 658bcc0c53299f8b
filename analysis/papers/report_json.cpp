
#include <fmt/format.h>

#include "analysis/base/statistics.hpp"
#include "analysis/papers/report.hpp"
#include "core/base/json.hpp"

namespace kvscope::papers {

namespace {

std::string unit_word(Unit unit) {
  return unit == Unit::percent  ? "share"
         : unit == Unit::factor ? "factor"
         : unit == Unit::tokens ? "tokens"
                                : "1";
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

Json check_json(const Item& item, const CheckOutcome& one) {
  return {
      {"hypothesis", hypothesis_of(item, *one.check)},
      {"role", std::string(enum_name(one.check->role))},
      {"answer", one.missing.empty() ? Json(std::string(enum_name(one.answer))) : Json(nullptr)},
      {"pairing", pairing_word(one.pairing)},
      {"units", one.units},
      {"threshold",
       one.pairing == Pairing::none ? Json(nullptr) : Json(threshold_of(item, *one.check))},
      {"difference", json_number(one.difference)},
      {"low", json_number(one.low)},
      {"high", json_number(one.high)},
      {"p", json_number(one.p)},
      {"power", json_number(one.power)},
      {"more_units", json_number(one.more)},
      {"kept_left", json_number(one.kept_left)},
      {"kept_right", json_number(one.kept_right)},
      {"reading", one.check->reading},
      {"sentence", one.missing.empty() ? one.sentence : one.missing}};
}

}  // namespace

std::string section_of(const Item& item) {
  return item.kind == Kind::error       ? "Errors found in the papers"
         : item.kind == Kind::ambiguity ? "What can be read in two ways"
                                        : paper_name(item.paper);
}

std::string note_of(const ItemOutcome& outcome) {
  const std::string& note = outcome.item->note;
  return note + (note.empty() || outcome.remark.empty() ? "" : " ") + outcome.remark;
}

std::string tally(const std::vector<ItemOutcome>& outcomes, Kind kind) {
  using Words = std::array<const char*, kVerdicts>;
  static constexpr Words kOne = {
      "holds",         "holds in form",  "depends on the reading", "is too small to count",
      "does not hold", "is not decided", "cannot be tested",       "was not run"};
  static constexpr Words kMany = {
      "hold",        "hold in form",    "depend on the reading", "are too small to count",
      "do not hold", "are not decided", "cannot be tested",      "were not run"};
  std::array<int, kVerdicts> counts{};
  for (const ItemOutcome& outcome : outcomes) {
    if (outcome.item->kind == kind) ++counts[static_cast<std::size_t>(outcome.judgement.verdict)];
  }
  std::string text;
  for (std::size_t v = 0; v < kVerdicts; ++v) {
    if (counts[v] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", counts[v],
                        (counts[v] == 1 ? kOne : kMany)[v]);
  }
  return text.empty() ? "none was looked at" : text;
}

Json report_json(const ReportHead& head, const std::vector<ItemOutcome>& outcomes) {
  Json json = {{"format", "kvscope-papers"},
               {"version", 2},
               {"model", head.model},
               {"draft", head.draft},
               {"quick", head.quick},
               {"writer", head.writer},
               {"command_line", head.command_line},
               {"seconds", json_number(head.seconds)},
               {"claims", tally(outcomes, Kind::claim)},
               {"errors", tally(outcomes, Kind::error)},
               {"ambiguities", tally(outcomes, Kind::ambiguity)},
               {"items", Json::array()}};
  head.formats.add_to(json);
  for (const ItemOutcome& outcome : outcomes) {
    const Item& item = *outcome.item;
    const bool has_value = !item.values.empty();
    Json values = Json::array();
    for (std::size_t i = 0; i < item.values.size(); ++i)
      values.push_back(value_json(item.values[i], outcome.measured[i]));
    Json checks = Json::array();
    for (const CheckOutcome& one : outcome.judgement.checks)
      checks.push_back(check_json(item, one));
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
         {"error", item.kind == Kind::error},
         {"ambiguity", item.kind == Kind::ambiguity},
         {"claim", item.claim},
         {"words", item.words},
         {"published", item.published},
         {"ours", has_value ? json_number(outcome.measured[0].value) : Json(nullptr)},
         {"low", has_value ? json_number(outcome.measured[0].low) : Json(nullptr)},
         {"high", has_value ? json_number(outcome.measured[0].high) : Json(nullptr)},
         {"unit", has_value ? unit_word(item.values[0].unit) : ""},
         {"verdict", word_of(outcome.judgement)},
         {"reason", outcome.judgement.reason},
         {"checks", checks},
         {"doubts", outcome.doubts},
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
