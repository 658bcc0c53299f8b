// The report over all items: as a page and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "analysis/base/number_formats.hpp"
#include "analysis/papers/item.hpp"
#include "analysis/papers/measure.hpp"
#include "analysis/papers/page.hpp"
#include "analysis/papers/verdict.hpp"

namespace kvscope::papers {

struct ItemOutcome {
  const Item* item = nullptr;
  std::vector<Measured> measured;
  Judgement judgement;
  /// Of the runs it reads, as they can be typed in the report's folder.
  std::vector<std::string> commands;
  std::vector<std::string> files;  // their results, relative to the report's folder
  std::vector<DrawnPicture> pictures;
  std::string remark;               // what this report's runs add to the item's note
  std::vector<std::string> doubts;  // what its runs say against themselves
};

struct ReportHead {
  std::string model;  // "verifier"
  std::string draft;  // empty: none
  bool quick = false;
  NumberFormats formats;
  std::string writer;  // program, version, commit
  std::string command_line;
  double seconds = 0.0;  // of all runs, also those of earlier starts
};

/// {"format", "model", ..., "items": [{"item", "paper", "place", "claim", "words",
/// "published", "ours", "low", "high", "unit", "verdict", "reason", "checks": [{"hypothesis",
/// "pairing", "threshold", "power", "difference", "low", "high", ...}], "doubts",
/// "command", "values", "files", ...}]}.
nlohmann::ordered_json report_json(const ReportHead& head,
                                   const std::vector<ItemOutcome>& outcomes);
Page report_page(const ReportHead& head, const std::vector<ItemOutcome>& outcomes);

/// "12 hold, 8 hold in form, ...": what the report begins with; verdicts that nobody got are left
/// out.
std::string tally(const std::vector<ItemOutcome>& outcomes, Kind kind);

}  // namespace kvscope::papers
