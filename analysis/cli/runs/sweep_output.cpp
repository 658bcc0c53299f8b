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

/// The layers of one trace under one pair: means over those without a window.
struct PairMeans {
  const SweepRow& row;  // of the first layer
  std::array<Mean, kSweepNumbers.size()> means;
  Index n_layers = 0, n_dense = 0, n_windowed = 0;
  double lowest = std::numeric_limits<double>::infinity();  // mass of a row
  bool has_windows_only = true;

  double mean(SweepNumber column) const { return means[static_cast<std::size_t>(column)].value(); }
  std::string cell(SweepNumber column) const { return number_text(mean(column)); }
};

/// Of the blocks from `first` on; moves it behind them.
PairMeans means_of_pair(const std::vector<SweepBlock>& blocks, std::size_t& first) {
  const SweepBlock& head = blocks[first];
  PairMeans pair{.row = head.rows.front()};
  for (; first < blocks.size() && blocks[first].trace == head.trace &&
         blocks[first].pair == head.pair;
       ++first) {
    const SweepRow& row = blocks[first].rows.front();
    const double window = row.number(SweepNumber::window);
    ++pair.n_layers;
    pair.n_dense += row.number(SweepNumber::dense) != 0.0 ? 1 : 0;
    pair.has_windows_only = pair.has_windows_only && window == 1.0;
    pair.n_windowed += window != 0.0 ? 1 : 0;
    if (window != 0.0) continue;
    for (std::size_t c = 0; c < pair.means.size(); ++c) pair.means[c].add(row.numbers[c]);
    pair.lowest = std::min(pair.lowest, row.number(SweepNumber::mass_min));
  }
  return pair;
}

/// The line of a pair in the table.
std::vector<std::string> cells_of(const PairMeans& pair, bool is_matched, bool has_split) {
  const SweepRow& row = pair.row;
  const double budget = row.number(SweepNumber::budget);
  const double bytes = pair.mean(SweepNumber::bytes);
  std::vector<std::string> cells = {
      row.text(SweepText::selector),
      std::isnan(budget) ? "-" : fmt::format("{}={}", row.text(SweepText::budget_kind), budget),
      pair.cell(SweepNumber::kept),
      pair.cell(SweepNumber::union_keys),
      pair.cell(SweepNumber::mass_mean),
      pair.cell(SweepNumber::mass_p05),
      number_text(std::isfinite(pair.lowest) ? pair.lowest : std::nan("")),
      pair.cell(SweepNumber::recall10),
      pair.cell(SweepNumber::output_error_rel),
      pair.cell(SweepNumber::jaccard),
      std::isnan(bytes) ? "-" : bytes_text(bytes),
      fmt::format("{}/{}", pair.n_dense, pair.n_layers)};
  if (has_split)
    cells.insert(cells.begin() + 5,
                 {pair.cell(SweepNumber::lost_choosing), pair.cell(SweepNumber::lost_dividing)});
  if (!is_matched) return cells;
  cells[1] = row.text(SweepText::setting).empty() ? "-" : row.text(SweepText::setting);
  const char* const mark = row.text(SweepText::match_note).empty() ? "" : " *";
  cells.insert(cells.begin() + 2, {row.text(SweepText::match),
                                   number_text(row.number(SweepNumber::match_reached)) + mark});
  return cells;
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
  }
  if (has_split) header.insert(std::ranges::find(header, "p5"), {"lost choosing", "lost dividing"});
  if (many_traces) header.insert(header.begin(), "trace");
  TextTable table(header);
  std::string notes;
  std::vector<SummaryLine> lines;
  Index n_windowed = 0;  // layers of a trace
  for (std::size_t next = 0; next < result.blocks.size();) {
    const PairMeans pair = means_of_pair(result.blocks, next);
    const SweepRow& row = pair.row;
    n_windowed = std::max(n_windowed, pair.n_windowed);
    std::vector<std::string> cells = cells_of(pair, is_matched, has_split);
    const std::string& note = row.text(SweepText::match_note);
    if (is_matched && !note.empty()) {
      notes += fmt::format("* {}{}, {}: {}\n", many_traces ? row.text(SweepText::trace) + ", " : "",
                           row.text(SweepText::selector), row.text(SweepText::match), note);
    } else {
      lines.push_back({row.text(SweepText::trace), row.text(SweepText::selector),
                       is_matched ? row.text(SweepText::match) : cells[1],
                       pair.mean(SweepNumber::mass_mean), pair.has_windows_only,
                       !std::isnan(row.number(SweepNumber::budget)) &&
                           pair.n_dense < pair.n_layers && pair.mean(SweepNumber::density) >= 1.0});
    }
    if (many_traces) cells.insert(cells.begin(), row.text(SweepText::trace));
    table.add_row(std::move(cells));
  }
  std::string text = table.text() + notes;
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
