// Kinds of kvscope analyze that are one function of one trace and one options struct; what is left
// to the kind is its card.
#pragma once

#include <concepts>
#include <utility>

#include "analysis/cli/inspect/analyze_command.hpp"
#include "analysis/cli/runs/selection_options.hpp"
#include "core/base/fields_json.hpp"

namespace kvscope::cli {

/// Options of an analysis that can look at a part of a trace: it gets --layers and --heads.
template <class Options>
concept LooksAtAPart = requires(Options& options) {
  { options.selection } -> std::same_as<TraceSelection&>;
};

template <class Options>
class AnalyzeOne : public AnalyzeCommand {
 public:
  using Analysis = Json (*)(const TraceSource&, const Options&, const AnalysisRun&);

  AnalyzeOne(Analysis analysis, AnalysisCard card)
      : AnalyzeCommand(std::move(card)), analysis_(analysis) {}

 private:
  std::vector<Index> item_layers(const Traces& traces) const final {
    if (!kind_card().has_items) return {};
    const TraceInfo& info = traces[0].info();
    if constexpr (LooksAtAPart<Options>) return selected_part(info, selection_.selection()).layers;
    return info.layers;
  }
  void declare_kind(OptionSet& options) final {
    if constexpr (LooksAtAPart<Options>) selection_.declare(options);
    options.fields(options_);
  }
  Json options_json() const final {
    if constexpr (LooksAtAPart<Options>) return selection_.with(fields_to_json(options_));
    return fields_to_json(options_);
  }
  Json call(const Traces& traces, const AnalysisRun& run) const final {
    Options options = options_;
    if constexpr (LooksAtAPart<Options>) options.selection = selection_.selection();
    return analysis_(traces[0], options, run);
  }

  Analysis analysis_;
  Options options_;
  SelectionOptions selection_;
};

}  // namespace kvscope::cli
