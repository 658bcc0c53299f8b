#include "analysis/papers/report.hpp"

#include <fmt/format.h>

#include "analysis/base/statistics.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"

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

/// The heading that an item stands under: its paper, the errors, or what is ambiguous.
std::string section_of(const Item& item) {
  return item.kind == Kind::error       ? "Errors found in the papers"
         : item.kind == Kind::ambiguity ? "What can be read in two ways"
                                        : paper_name(item.paper);
}

/// The item's note and the outcome's remark.
std::string note_of(const ItemOutcome& outcome) {
  const std::string& note = outcome.item->note;
  return note + (note.empty() || outcome.remark.empty() ? "" : " ") + outcome.remark;
}

using Rows = std::vector<std::vector<Spans>>;

Span chip(const Judgement& judgement) {
  return {.text = word_of(judgement), .chip = static_cast<int>(judgement.verdict)};
}

/// A table for each heading.
void add_overview(Page& page, const std::vector<ItemOutcome>& outcomes) {
  std::string section;
  Rows rows;
  const auto end_section = [&] {
    if (!rows.empty()) page.table({{section, 0.46}, {"Ours", 0.31}, {"Verdict", 0.15}}, rows);
    rows.clear();
  };
  for (const ItemOutcome& outcome : outcomes) {
    const Item& item = *outcome.item;
    if (section_of(item) != section) end_section();
    section = section_of(item);
    const std::string paper = item.kind != Kind::claim ? paper_name(item.paper) + ", " : "";
    Spans ours;
    if (!item.values.empty())
      ours = {{plain_number(outcome.measured[0].value, item.values[0].unit) + "\n"},
              {item.values[0].label, Style::soft}};
    rows.push_back(
        {{{.text = item.title, .link = item.id}, {"\n"}, {paper + item.place, Style::soft}},
         ours,
         {chip(outcome.judgement)}});
  }
  end_section();
}

/// What was asked before anything ran, and what came out.
void add_checks(Page& page, const ItemOutcome& outcome) {
  Rows rows;
  for (const CheckOutcome& one : outcome.judgement.checks) {
    const bool is_paired = one.pairing != Pairing::none;
    rows.push_back(
        {{{hypothesis_of(*outcome.item, *one.check)}},
         {{is_paired ? "paired: " + difference_words(one) : "the values below", Style::soft}},
         {{one.missing.empty() ? std::string(enum_name(one.answer)) : "not measured"}}});
  }
  if (!rows.empty()) page.table({{"Asked", 0.42}, {"Compared by", 0.35}, {"Answer", 0.15}}, rows);
}

void add_values(Page& page, const ItemOutcome& outcome) {
  Rows rows;
  for (std::size_t i = 0; i < outcome.item->values.size(); ++i) {
    const Value& value = outcome.item->values[i];
    const Measured& measured = outcome.measured[i];
    rows.push_back(
        {{{value.label}},
         {{number_of(measured, value.unit)}},
         {{measured.missing.empty() ? measured.interval : measured.missing, Style::soft}}});
  }
  if (!rows.empty())
    page.table({{"Measured on this model", 0.45}, {"", 0.2}, {"Interval", 0.27}}, rows);
}

void add_item(Page& page, const ItemOutcome& outcome) {
  const Item& item = *outcome.item;
  page.begin_entry(item.id, item.title, paper_name(item.paper) + ", " + item.place,
                   chip(outcome.judgement));
  Spans claim = {{item.claim}};
  if (!item.words.empty()) claim.push_back({"\n\u201c" + item.words + "\u201d"});
  std::vector<std::pair<std::string, Spans>> terms = {
      {item.kind != Kind::claim ? "As printed" : "Claim", claim},
      {"Published", {{item.published}}},
      {"Because", {{outcome.judgement.reason}}}};
  if (const std::string note = note_of(outcome); !note.empty()) terms.push_back({"Note", {{note}}});
  for (const std::string& doubt : outcome.doubts) terms.push_back({"Doubt", {{doubt}}});
  page.terms(terms);
  add_checks(page, outcome);
  add_values(page, outcome);
  std::vector<std::string> commands = outcome.commands;
  for (const DrawnPicture& picture : outcome.pictures) {
    page.picture(picture);
    if (!picture.command.empty()) commands.push_back(picture.command);
  }
  page.commands(commands, "Commands, in the report's folder", /*is_open=*/true);
  page.end_entry();
}

Spans how_to_read() {
  return {
      {"How to read it.", Style::bold},
      {" "},
      {"Holds", Style::italic},
      {": the claim and its size. "},
      {"Holds in form", Style::italic},
      {": the order or the sign, not the size. "},
      {"Depends on the reading", Style::italic},
      {": the paper or its programs have several rules, and the verdicts under them differ. "},
      {"Smaller than", Style::italic},
      {" a size: if there is a difference, it is too small to count. "},
      {"Does not hold", Style::italic},
      {": this model shows the opposite, or a choice drawn at random does as well. "},
      {"Not decided", Style::italic},
      {": the interval leaves both; how many more prompts would tell is said. "},
      {"Cannot be tested", Style::italic},
      {": this model or machine cannot tell; the reason is given. A verdict is about this model: "
       "the papers measured others, most of them a thousand times larger. What was asked stands "
       "in "},
      {"kvscope papers --plan", Style::code},
      {" before anything runs. Two methods on the same prompts, tokens or heads are compared by "
       "the 95 % interval of their difference there; what refutes a claim is asked for at 95 % "
       "over all its checks together, so that one true claim in forty is refuted by chance. "
       "Brackets behind a value are what the column \"Interval\" says. The mass of a choice of "
       "keys is the share of full attention that falls on them."}};
}

}  // namespace

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

Page report_page(const ReportHead& head, const std::vector<ItemOutcome>& outcomes) {
  Page page(fmt::format("QuoKA, Quest and SpecAttn: what holds on the model \"{}\"", head.model),
            head.writer);
  page.paragraph({{fmt::format(
      "Every table and figure of three papers on sparse attention, made again on one model{}, and "
      "the errors found in them. Of the claims {}. Of what is printed in error, {}. Of what can be "
      "read in two ways, {}.",
      head.draft.empty() ? "" : fmt::format(" (draft: \"{}\")", head.draft),
      tally(outcomes, Kind::claim), tally(outcomes, Kind::error),
      tally(outcomes, Kind::ambiguity))}});
  page.paragraph(how_to_read());
  if (head.quick) {
    page.paragraph({{"Quick mode", Style::bold},
                    {": short prompts and few of them, so intervals are wide and more items "
                     "cannot be told apart. Without --quick the same command asks more."}});
  }
  if (!head.formats.are_f32())
    page.paragraph({{"Rounded", Style::bold}, {": " + head.formats.sentence()}});
  page.paragraph({{fmt::format("Made by {} with ", head.writer), Style::soft},
                  {head.command_line, Style::code},
                  {fmt::format("; its runs took {}. Every number is read from a result in the "
                               "folder runs; items.json has them all.",
                               seconds_text(head.seconds)),
                   Style::soft}});
  add_overview(page, outcomes);
  std::string section;
  for (const ItemOutcome& outcome : outcomes) {
    const std::string here = section_of(*outcome.item);
    if (here != section) page.heading(here);
    section = here;
    add_item(page, outcome);
  }
  return page;
}

}  // namespace kvscope::papers
