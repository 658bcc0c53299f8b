#include "analysis/cli/runs/sweep_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/base/calibration_notes.hpp"
#include "analysis/base/number_formats.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cli/frame/text_table.hpp"
#include "core/base/number_text.hpp"
#include "core/base/version.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

void write_sweep_output(const SweepResult& result, const fs::path& out, bool overwrite) {
  write_table_output({[&] { return sweep_csv(result); }, [&] { return sweep_json(result); },
                      [&](ResultWriter& output) { write_sweep(result, output, writer_name()); }},
                     out, overwrite);
}

namespace {

/// Means over layers of a method and budget in one trace, for what is said of them.
struct SummaryLine {
  std::string trace, selector, budget;
  double mass = 0.0;
  bool has_windows_only = true;
  bool keeps_all = false;  // a budget that changes nothing
};

std::vector<std::string> remarks_on(const std::vector<SummaryLine>& lines, bool is_matched) {
  std::vector<std::string> remarks;
  if (!lines.empty() &&
      std::ranges::all_of(lines, [](const SummaryLine& line) { return line.has_windows_only; }))
    remarks.emplace_back(
        "no method chose anything: every layer that was asked for attends within a window of its "
        "own (kvscope info shows them), so there is nothing to measure");
  std::set<std::string> all;
  for (const SummaryLine& line : lines) {
    if (line.keeps_all) all.insert(line.selector + " " + line.budget);
  }
  if (!all.empty())
    remarks.push_back(
        fmt::format("{}: every key is kept, so that nothing was chosen", fmt::join(all, ", ")));
  std::set<std::string> above;
  for (const SummaryLine& oracle : lines) {
    if (oracle.selector != "oracle-topk") continue;
    for (const SummaryLine& line : lines) {
      if (line.trace == oracle.trace && line.budget == oracle.budget && line.selector != "full" &&
          line.mass > oracle.mass + 5e-4)
        above.insert(line.selector);
    }
  }
  if (!above.empty())
    remarks.push_back(fmt::format(
        "{} {} more of the attention than oracle-topk at the same {}. No "
        "method chooses better than the oracle: {}{}",
        fmt::join(above, ", "), above.size() == 1 ? "keeps" : "keep",
        is_matched ? "cost" : "budget",
        is_matched ? "they divide their keys unevenly among rows, and it does not"
                   : "they keep more keys (column kept: a method's own chunk or window may come on "
                     "top of the budget), or divide them unevenly among rows",
        is_matched ? "" : "; --match keys=N compares at the same number of keys"));
  return remarks;
}

}  // namespace

SweepSummary sweep_summary(const SweepResult& result) {
  const bool many_traces = result.traces.size() > 1;
  std::vector<std::string> header = {"selector",   "budget",  "kept",       "union",
                                     "mass",       "p5",      "min",        "recall@10",
                                     "rel. error", "Jaccard", "bytes/call", "dense layers"};
  const bool is_matched = result.config.contains("match");
  const bool has_split = std::ranges::any_of(result.blocks, [](const SweepBlock& block) {
    return std::isfinite(block.rows.front().number(SweepNumber::lost_dividing));
  });
  if (is_matched) {
    header[1] = "setting";
    header.insert(header.begin() + 2, {"to meet", "reached"});
    if (has_split)
      header.insert(std::ranges::find(header, "p5"), {"lost choosing", "lost dividing"});
  }
  std::vector<std::string> notes;
  std::vector<SummaryLine> lines;
  if (many_traces) header.insert(header.begin(), "trace");
  TextTable table(header);
  Index n_windowed = 0;  // layers of a trace
  for (std::size_t first = 0; first < result.blocks.size();) {
    const SweepBlock& head = result.blocks[first];
    std::size_t last = first;
    std::array<Mean, kSweepNumbers.size()> means;
    Index n_dense = 0;
    Index n_with_window = 0;
    double lowest = std::numeric_limits<double>::infinity();
    bool has_windows_only = true;
    for (; last < result.blocks.size() && result.blocks[last].trace == head.trace &&
           result.blocks[last].pair == head.pair;
         ++last) {
      const SweepRow& row = result.blocks[last].rows.front();
      n_dense += row.number(SweepNumber::dense) != 0.0 ? 1 : 0;
      has_windows_only = has_windows_only && row.number(SweepNumber::window) == 1.0;
      n_with_window += row.number(SweepNumber::window) != 0.0 ? 1 : 0;
      if (row.number(SweepNumber::window) != 0.0) continue;
      for (std::size_t c = 0; c < means.size(); ++c) means[c].add(row.numbers[c]);
      lowest = std::min(lowest, row.number(SweepNumber::mass_min));
    }
    n_windowed = std::max(n_windowed, n_with_window);
    const auto cell = [&](SweepNumber column) {
      return number_text(means[static_cast<std::size_t>(column)].value());
    };
    const SweepRow& row = head.rows.front();
    const double budget = row.number(SweepNumber::budget);
    const double bytes = means[static_cast<std::size_t>(SweepNumber::bytes)].value();
    std::vector<std::string> cells = {
        row.text(SweepText::selector),
        std::isnan(budget) ? "-" : fmt::format("{}={}", row.text(SweepText::budget_kind), budget),
        cell(SweepNumber::kept),
        cell(SweepNumber::union_keys),
        cell(SweepNumber::mass_mean),
        cell(SweepNumber::mass_p05),
        number_text(std::isfinite(lowest) ? lowest : std::nan("")),
        cell(SweepNumber::recall10),
        cell(SweepNumber::output_error_rel),
        cell(SweepNumber::jaccard),
        std::isnan(bytes) ? "-" : bytes_text(bytes),
        fmt::format("{}/{}", n_dense, last - first)};
    if (has_split)
      cells.insert(cells.begin() + 5,
                   {cell(SweepNumber::lost_choosing), cell(SweepNumber::lost_dividing)});
    if (is_matched) {
      cells[1] = row.text(SweepText::setting).empty() ? "-" : row.text(SweepText::setting);
      const std::string& note = row.text(SweepText::match_note);
      cells.insert(cells.begin() + 2, {row.text(SweepText::match),
                                       number_text(row.number(SweepNumber::match_reached)) +
                                           (note.empty() ? "" : " *")});
      if (!note.empty())
        notes.push_back(
            fmt::format("* {}{}, {}: {}", many_traces ? row.text(SweepText::trace) + ", " : "",
                        row.text(SweepText::selector), row.text(SweepText::match), note));
    }
    const bool has_missed = is_matched && !row.text(SweepText::match_note).empty();
    if (!has_missed)
      lines.push_back({row.text(SweepText::trace), row.text(SweepText::selector),
                       is_matched ? row.text(SweepText::match) : cells[1],
                       means[static_cast<std::size_t>(SweepNumber::mass_mean)].value(),
                       has_windows_only,
                       !std::isnan(budget) && n_dense < static_cast<Index>(last - first) &&
                           means[static_cast<std::size_t>(SweepNumber::density)].value() >= 1.0});
    if (many_traces) cells.insert(cells.begin(), row.text(SweepText::trace));
    table.add_row(std::move(cells));
    first = last;
  }
  std::string text = table.text();
  for (const std::string& note : notes) text += note + "\n";
  if (n_windowed > 0)
    text +=
        fmt::format("{} layer{} with a sliding window {} not in the means, and count as dense.\n",
                    n_windowed, n_windowed == 1 ? "" : "s", n_windowed == 1 ? "is" : "are");
  if (std::ranges::any_of(result.traces, &SweepTraceInfo::has_sinks))
    text += "Shares of attention are of what keys get: sink logits take the rest.\n";
  text += NumberFormats::of(result.config).line();
  for (const std::string& sentence : calibration_warnings(result.config))
    text += fmt::format("warning: {}\n", sentence);
  return {text, remarks_on(lines, is_matched)};
}

}  // namespace kvscope::cli
