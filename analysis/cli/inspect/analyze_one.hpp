// Kinds of kvscope analyze that are one function of one trace and one options struct; what is left
// to the kind is its card.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <optional>
#include <utility>

#include "analysis/cli/inspect/analyze_command.hpp"
#include "analysis/cli/runs/selection_options.hpp"
#include "core/base/fields_json.hpp"
#include "core/trace/part.hpp"

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
    if (const auto part = of_one_shape(info)) return part->layers;
    if constexpr (LooksAtAPart<Options>) return selected_part(info, selection_.selection()).layers;
    return info.layers;
  }
  /// Where layers differ, none is named and the kind takes those of one shape: the layers shaped as
  /// the first that sees everything.
  std::optional<TraceInfo> of_one_shape(const TraceInfo& info) const {
    if (!kind_card().one_shape || info.layer_shapes.empty()) return std::nullopt;
    if constexpr (LooksAtAPart<Options>) {
      if (!selection_.selection().layers.empty()) return std::nullopt;
    }
    std::vector<Index> layers;
    for (const std::vector<Index>& like : layers_by_shape(info)) {
      if (info.shape(like.front()).is_like(info.main_shape())) layers = like;
    }
    return with_layers(info, layers);
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
    const auto part = of_one_shape(traces[0].info());
    if (!part) return analysis_(traces[0], options, run);
    Json summary = analysis_(TracePart(traces[0], *part), options, run);
    summary["left_out"] = fmt::format(
        "layers of another shape than layer {} ({} KV heads of {} channels): {} of {} recorded "
        "layers are in the numbers",
        part->layers.front(), part->n_kv, part->d_head, part->layers.size(),
        traces[0].info().layers.size());
    return summary;
  }

  Analysis analysis_;
  Options options_;
  SelectionOptions selection_;
};

}  // namespace kvscope::cli
