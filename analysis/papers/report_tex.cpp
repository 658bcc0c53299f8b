#include <fmt/format.h>

#include "analysis/papers/report.hpp"
#include "core/base/escape.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::papers {

namespace {

std::string overview_tex(const std::vector<ItemOutcome>& outcomes) {
  std::string tex =
      "{\\small\n\\begin{longtable}{@{}l>{\\raggedright\\arraybackslash}p{.47\\linewidth}ll@{}}\n"
      "\\toprule\nPaper & Item & Ours & Verdict \\\\\n\\midrule\n\\endhead\n\\bottomrule\n"
      "\\endfoot\n";
  for (const ItemOutcome& outcome : outcomes) {
    const Item& item = *outcome.item;
    const std::string ours =
        item.values.empty() ? "" : plain_number(outcome.measured[0].value, item.values[0].unit);
    tex +=
        fmt::format("{} & \\hyperref[{}]{{{}}} & {} & {} \\\\\n", paper_name(item.paper), item.id,
                    tex_escape(item.title), tex_escape(ours), word_of(outcome.judgement));
  }
  return tex + "\\end{longtable}}\n";
}

std::string values_tex(const ItemOutcome& outcome) {
  if (outcome.item->values.empty()) return "";
  std::string tex =
      "\\begin{center}\\small\n\\begin{tabular}{@{}>{\\raggedright\\arraybackslash}p{.55"
      "\\linewidth}>{\\raggedright\\arraybackslash}p{.4\\linewidth}@{}}\n\\toprule\n"
      "Measured on this model & \\\\\n\\midrule\n";
  for (std::size_t i = 0; i < outcome.item->values.size(); ++i) {
    const Value& value = outcome.item->values[i];
    const Measured& measured = outcome.measured[i];
    const std::string more = measured.missing.empty() ? measured.interval : measured.missing;
    tex += fmt::format("{} & {}{} \\\\\n", tex_escape(value.label),
                       tex_escape(number_of(measured, value.unit)),
                       more.empty() ? "" : fmt::format(" ({})", tex_escape(more)));
  }
  return tex + "\\bottomrule\n\\end{tabular}\n\\end{center}\n";
}

std::string item_tex(const ItemOutcome& outcome) {
  const Item& item = *outcome.item;
  std::string tex = fmt::format(
      "\\subsection*{{{}}}\n\\label{{{}}}\\addcontentsline{{toc}}{{subsection}}{{{}}}\n"
      "\\emph{{{}, {}}}: \\textbf{{{}}}. {}\n\n"
      "\\textbf{{{}.}} {}{}\n\n\\textbf{{Published.}} {}\n\n",
      tex_escape(item.title), item.id, tex_escape(item.title), paper_name(item.paper),
      tex_escape(item.place), word_of(outcome.judgement), tex_escape(outcome.judgement.reason),
      item.kind != Kind::claim ? "As printed" : "Claim", tex_escape(item.claim),
      item.words.empty() ? "" : fmt::format(" ``{}''", tex_escape(item.words)),
      tex_escape(item.published));
  const std::string note = note_of(outcome);
  if (!note.empty()) tex += fmt::format("\\textbf{{Note.}} {}\n\n", tex_escape(note));
  for (const std::string& doubt : outcome.doubts)
    tex += fmt::format("\\textbf{{Doubt.}} {}\n\n", tex_escape(doubt));
  tex += values_tex(outcome);
  for (const DrawnPicture& picture : outcome.pictures) tex += picture_tex(picture);
  for (const std::string& command : outcome.commands) tex += command_tex(command);
  for (const DrawnPicture& picture : outcome.pictures) {
    if (!picture.command.empty()) tex += command_tex(picture.command);
  }
  return tex;
}

}  // namespace

std::string report_tex(const ReportHead& head, const std::vector<ItemOutcome>& outcomes) {
  std::string tex = tex_preamble();
  tex += fmt::format(
      "\\title{{QuoKA, Quest and SpecAttn: what holds on the model {}}}\n"
      "\\author{{made by {}}}\n\\date{{}}\n\\begin{{document}}\n\\maketitle\n",
      tex_escape(head.model), tex_escape(head.writer));
  tex += fmt::format(
      "Of the claims {}. Of what is printed in error, {}. Of what can be read in two ways, {}.{} "
      "\\emph{{Holds}}: the claim and its "
      "size. \\emph{{Holds in form}}: the order or the sign, not the size. \\emph{{Depends on the "
      "reading}}: verdicts under several rules differ. \\emph{{Smaller than}} a size: too small to "
      "count. \\emph{{Does not hold}}: this model shows the opposite, or a choice at random does "
      "as well. \\emph{{Not decided}}: the interval leaves both. \\emph{{Cannot be tested}}: this "
      "model or machine cannot tell. A verdict is about this model; the papers measured others. "
      "Two methods on the same prompts, "
      "tokens or heads are compared by the 95\\,\\% interval of their difference.{}\n\n",
      tally(outcomes, Kind::claim), tally(outcomes, Kind::error), tally(outcomes, Kind::ambiguity),
      head.quick ? " Quick mode: few and short prompts." : "",
      head.formats.are_f32() ? "" : " " + tex_escape(head.formats.sentence()));
  tex += command_tex(head.command_line) + overview_tex(outcomes);
  std::string section;
  for (const ItemOutcome& outcome : outcomes) {
    const std::string here = section_of(*outcome.item);
    if (here != section) tex += fmt::format("\\section*{{{}}}\n", here);
    section = here;
    tex += item_tex(outcome);
  }
  return tex + "\\end{document}\n";
}

}  // namespace kvscope::papers
