#include "analysis/cli/replay_arguments.hpp"

#include <algorithm>

#include "analysis/cli/read_input.hpp"

namespace kvscope::cli {

namespace {

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

/// "quest,quoka:n-queries=8,pairing=rank" to {"quest", "quoka:n-queries=8,pairing=rank"}: an
/// assignment without a method in front belongs to the method before it.
std::vector<std::string> split_selectors(const std::vector<std::string>& lists) {
  std::vector<std::string> specs;
  for (const std::string& list : lists) {
    bool is_first = true;
    for (const std::string& part : split(list)) {
      if (part.empty())
        throw UsageError(
            fmt::format("--selector: expected names between the commas of \"{}\"", list));
      const bool is_option = part.find('=') < part.find(':');
      if (is_option && is_first) {
        throw UsageError(
            fmt::format("--selector: expected a method's name first, found \"{}\"", part));
      }
      if (is_option) {
        const bool has_options = specs.back().find(':') != std::string::npos;
        specs.back() = fmt::format("{}{}{}", specs.back(), has_options ? ',' : ':', part);
      } else {
        specs.push_back(part);
      }
      is_first = false;
    }
  }
  return specs;
}

/// "tokens=64,128,ratio=0.25": a bare number is of the kind before it.
std::vector<Budget> split_budgets(const std::vector<std::string>& lists) {
  std::vector<Budget> budgets;
  for (const std::string& list : lists) {
    std::string kind = "tokens";
    for (const std::string& part : split(list)) {
      const std::size_t equals = part.find('=');
      if (equals != std::string::npos) kind = part.substr(0, equals);
      budgets.push_back(
          Budget::parse(equals == std::string::npos ? fmt::format("{}={}", kind, part) : part));
    }
  }
  return budgets;
}

}  // namespace

void ReplayArguments::declare(OptionSet& options) {
  options.add(
      "selector", "NAME[,NAME]",
      "methods to compare, with options as NAME:option=value (kvscope selectors lists them)",
      selectors_);
  options.add("budget", "LIST",
              "tokens=64,128 or pages=..., ratio=0.25,... or p=0.95,...; a bare number is tokens",
              budgets_);
  options.add("phase", "WORD", "which calls are replayed", phase_);
  options.add("chunk", "N", "B_CP: queries per prefill call", calls_.chunk);
  options.add("steps", "N", "decode and verify: calls measured, evenly spaced", calls_.steps);
  options.add("drafts", "N", "verify: tokens verified at once", calls_.drafts);
  options.add("rows-per-chunk", "N", "measured queries of a call, evenly spaced, or all [8]",
              rows_per_chunk_);
  options.add("layers", "LIST", "layers to look at, as 0,4-7 [all]", layers_);
  options.add("heads", "LIST", "query heads to measure, as 0,4-7 [all]", heads_);
  options.add("dense-layers", "N",
              "leading layers that every method leaves dense [the method's own]", dense_layers_);
}

std::vector<std::string> ReplayArguments::selectors() const {
  return split_selectors(selectors_);
}

std::vector<Budget> ReplayArguments::budgets() const {
  return split_budgets(budgets_);
}

ReplayOptions ReplayArguments::replay() const {
  ReplayOptions out;
  out.calls = calls_;
  out.calls.phase = phase_;
  out.dense_layers = dense_layers_;
  if (dense_layers_ && *dense_layers_ < 0) {
    throw UsageError(fmt::format("--dense-layers: expected at least 0, found {}", *dense_layers_));
  }
  if (rows_per_chunk_ == "all") {
    out.rows_per_chunk.reset();
  } else if (rows_per_chunk_) {
    Index rows = 0;
    detail::set_value("--rows-per-chunk", *rows_per_chunk_, rows);
    if (rows < 1)
      throw UsageError(fmt::format("--rows-per-chunk: expected at least 1 or all, found {}", rows));
    out.rows_per_chunk = rows;
  }
  if (heads_) out.q_heads = parse_index_list(*heads_, "heads");
  return out;
}

std::vector<Index> ReplayArguments::layers() const {
  return layers_ ? parse_index_list(*layers_, "layers") : std::vector<Index>{};
}

}  // namespace kvscope::cli
