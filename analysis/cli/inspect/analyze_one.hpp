// Kinds of kvscope analyze that are one function of one trace, or of two, and one options struct;
// what is left to the kind is its card.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <utility>

#include "analysis/cli/frame/list_options.hpp"
#include "analysis/cli/inspect/analyze_command.hpp"
#include "core/base/fields_json.hpp"
#include "core/selectors/spec_lists.hpp"
#include "core/trace/part.hpp"

namespace kvscope::cli {

/// Options of an analysis that knows the part of the trace it looks at; others get it as a trace.
template <class Options>
concept LooksAtAPart = requires(Options& options) {
  { options.selection } -> std::same_as<TraceSelection&>;
};

/// Of whole traces: of one, or with one more Source of a verifier's and its draft's.
template <class Options, class... Source>
class AnalyzeWhole final : public AnalyzeCommand {
 public:
  using Analysis = Json (*)(const TraceSource&, const Source&..., const Options&,
                            const AnalysisRun&);

  AnalyzeWhole(Analysis analysis, AnalysisCard card)
      : AnalyzeCommand(std::move(card), 1 + sizeof...(Source)), analysis_(analysis) {}

 private:
  void declare_kind(OptionSet& options) override { options.fields(options_); }
  Json options_json() const override { return fields_to_json(options_); }
  Json call(const Traces& traces, const AnalysisRun& run) const override {
    return analysis_(traces[0], static_cast<const Source&>(traces.back())..., options_, run);
  }

  Analysis analysis_;
  Options options_;
};
template <class Options>
using AnalyzePair = AnalyzeWhole<Options, TraceSource>;

template <class Options>
class AnalyzeOne : public AnalyzeCommand {
 public:
  using Analysis = Json (*)(const TraceSource&, const Options&, const AnalysisRun&);

  AnalyzeOne(Analysis analysis, AnalysisCard card)
      : AnalyzeCommand(std::move(card)), analysis_(analysis) {}

 private:
  std::vector<Index> item_layers(const Traces& traces) const final {
    if (!kind_card().has_items) return {};
    return part_of(traces[0].info()).layers;
  }
  /// What is looked at. Where layers differ, none is named and the kind takes those of one shape:
  /// the layers shaped as the first that sees everything.
  TraceInfo part_of(const TraceInfo& info) const {
    TraceInfo part = selected_part(info, selection_.selection());
    if (!kind_card().one_shape || part.layer_shapes.empty() || selection_.layers) return part;
    std::vector<Index> layers;
    for (const std::vector<Index>& like : layers_by_heads(part)) {
      if (part.shape(like.front()).has_same_heads(part.main_shape())) layers = like;
    }
    return with_layers(part, layers);
  }
  void declare_kind(OptionSet& options) final {
    selection_.declare(options);
    options.fields(options_);
  }
  Json options_json() const final { return selection_.with(fields_to_json(options_)); }
  std::vector<MethodSpec> methods() const final {
    if constexpr (requires { options_.selector; }) {
      if (!options_.selector.empty()) return parse_methods({options_.selector}, "--selector");
    }
    return {};
  }
  Json call(const Traces& traces, const AnalysisRun& run) const final {
    const TraceInfo& info = traces[0].info();
    const TraceInfo part = part_of(info);
    const bool leaves_out = !selection_.layers && part.layers.size() < info.layers.size();
    Options options = options_;
    if constexpr (LooksAtAPart<Options>) {
      options.selection = selection_.selection();
      if (!leaves_out) return analysis_(traces[0], options, run);
    }
    Json summary = analysis_(TracePart(traces[0], part), options, run);
    if (leaves_out)
      summary["left_out"] = fmt::format(
          "layers of another shape than layer {} ({} KV heads of {} channels): {} of {} recorded "
          "layers are in the numbers",
          part.layers.front(), part.n_kv, part.d_head, part.layers.size(), info.layers.size());
    return summary;
  }

  Analysis analysis_;
  Options options_;
  SelectionOptions selection_;
};

}  // namespace kvscope::cli
