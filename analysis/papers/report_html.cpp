#include <fmt/format.h>

#include "analysis/papers/report.hpp"
#include "core/base/escape.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::papers {

namespace {

std::string chip(const Judgement& judgement) {
  return fmt::format("<span class=\"verdict v{}\">{}</span>", static_cast<int>(judgement.verdict),
                     word_of(judgement));
}

std::string overview_html(const std::vector<ItemOutcome>& outcomes) {
  std::string html = "<div class=\"scroll\"><table>\n";
  std::string section;
  for (const ItemOutcome& outcome : outcomes) {
    const Item& item = *outcome.item;
    const std::string here = section_of(item);
    if (here != section) {
      html += fmt::format("<tr><th>{}</th><th>Ours</th><th>Verdict</th></tr>\n", here);
      section = here;
    }
    std::string ours;
    if (!item.values.empty()) {
      ours = fmt::format("{}<br><span class=\"soft small\">{}</span>",
                         xml_escape(plain_number(outcome.measured[0].value, item.values[0].unit)),
                         xml_escape(item.values[0].label));
    }
    html += fmt::format(
        "<tr><td><a href=\"#{}\">{}</a><br><span class=\"soft small\">{}{}</span></td><td>{}</td>"
        "<td>{}</td></tr>\n",
        item.id, xml_escape(item.title),
        item.kind != Kind::claim ? paper_name(item.paper) + ", " : "", xml_escape(item.place), ours,
        chip(outcome.judgement));
  }
  return html + "</table></div>\n";
}

std::string values_html(const ItemOutcome& outcome) {
  if (outcome.item->values.empty()) return "";
  std::string html =
      "<div class=\"scroll\"><table><tr><th>Measured on this model</th><th></th>"
      "<th>Interval</th></tr>\n";
  for (std::size_t i = 0; i < outcome.item->values.size(); ++i) {
    const Value& value = outcome.item->values[i];
    const Measured& measured = outcome.measured[i];
    const std::string interval = measured.missing.empty() ? measured.interval : measured.missing;
    html += fmt::format(
        "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"soft\">{}</td></tr>\n",
        xml_escape(value.label), xml_escape(number_of(measured, value.unit)), xml_escape(interval));
  }
  return html + "</table></div>\n";
}

/// What was asked before anything ran, and what came out.
std::string checks_html(const ItemOutcome& outcome) {
  const auto& checks = outcome.judgement.checks;
  if (checks.empty()) return "";
  std::string html =
      "<div class=\"scroll\"><table><tr><th>Asked</th><th>Compared by</th><th>Answer</th></tr>\n";
  for (const CheckOutcome& one : checks) {
    const bool is_paired = one.pairing != Pairing::none;
    html +=
        fmt::format("<tr><td>{}</td><td class=\"soft\">{}</td><td class=\"number\">{}</td></tr>\n",
                    xml_escape(hypothesis_of(*outcome.item, *one.check)),
                    xml_escape(is_paired ? "paired: " + difference_words(one) : "the values below"),
                    !one.missing.empty()         ? "not measured"
                    : one.answer == Answer::yes  ? "yes"
                    : one.answer == Answer::open ? "open"
                                                 : "no");
  }
  return html + "</table></div>\n";
}

std::string commands_html(const ItemOutcome& outcome) {
  std::string lines;
  for (const std::string& command : outcome.commands)
    lines += fmt::format("<pre>{}</pre>", xml_escape(command));
  for (const DrawnPicture& picture : outcome.pictures) {
    if (!picture.command.empty())
      lines += fmt::format("<pre>{}</pre>", xml_escape(picture.command));
  }
  if (lines.empty()) return "";
  return fmt::format(
      "<details open><summary>Commands, in the report's folder</summary>{}</details>\n", lines);
}

std::string item_html(const ItemOutcome& outcome) {
  const Item& item = *outcome.item;
  std::string html = fmt::format(
      "<section class=\"item\" id=\"{}\"><div class=\"head\"><div><h3>{}</h3>"
      "<span class=\"soft small\">{}, {}</span></div>{}</div>\n<dl>"
      "<dt>{}</dt><dd>{}{}</dd><dt>Published</dt><dd>{}</dd><dt>Because</dt><dd>{}</dd>",
      item.id, xml_escape(item.title), paper_name(item.paper), xml_escape(item.place),
      chip(outcome.judgement), item.kind != Kind::claim ? "As printed" : "Claim",
      xml_escape(item.claim),
      item.words.empty() ? "" : fmt::format("<br><q>{}</q>", xml_escape(item.words)),
      xml_escape(item.published), xml_escape(outcome.judgement.reason));
  const std::string note = note_of(outcome);
  if (!note.empty()) html += fmt::format("<dt>Note</dt><dd>{}</dd>", xml_escape(note));
  for (const std::string& doubt : outcome.doubts)
    html += fmt::format("<dt>Doubt</dt><dd>{}</dd>", xml_escape(doubt));
  html += "</dl>\n" + checks_html(outcome) + values_html(outcome);
  for (std::size_t i = 0; i < outcome.pictures.size(); ++i)
    html += picture_html(outcome.pictures[i], fmt::format("{}-{}-", item.id, i));
  return html + commands_html(outcome) + "</section>\n";
}

}  // namespace

std::string report_html(const ReportHead& head, const std::vector<ItemOutcome>& outcomes) {
  std::string html =
      page_begin(fmt::format("What three papers claim, and what {} shows", head.model));
  html += fmt::format(
      "<h1>QuoKA, Quest and SpecAttn: what holds on the model {}</h1>\n"
      "<p>Every table and figure of three papers on sparse attention, made again on one model{}, "
      "and the errors found in them. Of the claims {}. Of what is printed in error, {}. Of what "
      "can be read in two ways, {}.</p>\n",
      xml_escape(fmt::format("\"{}\"", head.model)),
      head.draft.empty() ? "" : xml_escape(fmt::format(" (draft: \"{}\")", head.draft)),
      tally(outcomes, Kind::claim), tally(outcomes, Kind::error), tally(outcomes, Kind::ambiguity));
  html +=
      "<p><b>How to read it.</b> <i>Holds</i>: the claim and its size. <i>Holds in form</i>: the "
      "order or the sign, not the size. <i>Depends on the reading</i>: the paper or its programs "
      "have several rules, and the verdicts under them differ. <i>Smaller than</i> a size: if "
      "there is a difference, it is too small to count. <i>Does not hold</i>: this model shows the "
      "opposite, or a choice drawn at random does as well. <i>Not decided</i>: the interval leaves "
      "both; how many more prompts would tell is said. <i>Cannot be tested</i>: this model or "
      "machine cannot tell; the reason is given. A verdict is about this model: the papers "
      "measured others, most of them a thousand times larger. What was asked stands in "
      "<code>kvscope papers --plan</code> before "
      "anything runs. Two methods on the same prompts, tokens or heads are compared by the 95 % "
      "interval of their difference there; what refutes a claim is asked for at 95 % over all its "
      "checks together, so that one true claim in forty is refuted by chance. Brackets behind a "
      "value are what the column \"Interval\" says. The mass of a choice of keys is the share of "
      "full attention that falls on them.</p>\n";
  if (head.quick) {
    html +=
        "<p><b>Quick mode</b>: short prompts and few of them, so intervals are wide and more items "
        "cannot be told apart. Without --quick the same command asks more.</p>\n";
  }
  if (!head.formats.are_f32())
    html += fmt::format("<p><b>Rounded</b>: {}</p>\n", xml_escape(head.formats.sentence()));
  html += fmt::format(
      "<p class=\"soft small\">Made by {} with <code>{}</code>; its runs took {}. Every "
      "number is read from a result in the folder runs; items.json has them all.</p>\n",
      xml_escape(head.writer), xml_escape(head.command_line), seconds_text(head.seconds));
  html += overview_html(outcomes);
  std::string section;
  for (const ItemOutcome& outcome : outcomes) {
    const std::string here = section_of(*outcome.item);
    if (here != section) html += fmt::format("<h2>{}</h2>\n", here);
    section = here;
    html += item_html(outcome);
  }
  return html + "</body></html>\n";
}

}  // namespace kvscope::papers
