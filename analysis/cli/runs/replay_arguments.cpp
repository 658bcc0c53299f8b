#include "analysis/cli/runs/replay_arguments.hpp"

#include "analysis/cli/frame/list_options.hpp"
#include "core/selectors/spec_lists.hpp"

namespace kvscope::cli {

void ReplayArguments::declare(OptionSet& options) {
  options.add(
      "selector", "NAME[,NAME]",
      "methods to compare, with options as NAME:option=value, stacked as NAME@BUDGET+NAME (kvscope "
      "selectors lists them)",
      selectors_);
  options.add("budget", "LIST",
              "tokens=64,128 or pages=..., ratio=0.25,... or p=0.95,...; a bare number is tokens",
              budgets_);
  options.add("phase", "WORD",
              "which calls are replayed; a recording without decoded tokens has the later half of "
              "its prompt replayed as decode or verify",
              phase_);
  options.add("chunk", "N", "B_CP: queries per prefill call", calls_.chunk, at_least(1));
  options.add("steps", "N", "decode and verify: calls measured, evenly spaced", calls_.steps,
              at_least(1));
  options.add("drafts", "N", "verify: tokens verified at once", calls_.drafts, at_least(1));
  options.add("rows-per-chunk", "N", "measured queries of a call, evenly spaced, or all [8]",
              rows_per_chunk_);
  options.add("layers", "LIST", "layers to include, as 0,4-7 [all]", layers_);
  options.add("heads", "LIST", "query heads to measure, as 0,4-7 [all]", heads_);
  options.add("dense-layers", "N",
              "leading layers that every method leaves dense [the method's own]", dense_layers_,
              at_least(0));
}

std::vector<MethodSpec> ReplayArguments::selectors() const {
  return selectors_of(selectors_);
}

std::vector<Budget> ReplayArguments::budgets() const {
  return budgets_of(budgets_);
}

ReplayOptions ReplayArguments::replay() const {
  ReplayOptions out{.calls = calls_};
  out.calls.phase = phase_;
  out.dense_layers = dense_layers_;
  if (rows_per_chunk_ == "all") {
    out.rows_per_chunk.reset();
  } else if (rows_per_chunk_) {
    Index rows = 0;
    detail::set_value("--rows-per-chunk", *rows_per_chunk_, rows);
    if (rows < 1) throw UsageError("--rows-per-chunk: expected at least 1 or all, found {}", rows);
    out.rows_per_chunk = rows;
  }
  if (heads_) out.q_heads = index_list_of(*heads_, "heads");
  return out;
}

std::vector<Index> ReplayArguments::layers() const {
  return layers_ ? index_list_of(*layers_, "layers") : std::vector<Index>{};
}

}  // namespace kvscope::cli
