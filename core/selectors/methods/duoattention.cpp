// duoattention: retrieval heads see everything, the others attention sinks and a window (arXiv
// 2410.10819, ICLR 2025; official code).
//
// Idea: few heads look far back. Every KV head has a gate in [0, 1], found once per model; those
// with the highest gates (retrieval heads) keep the whole cache, the others (streaming heads) the
// first n-sink and the latest n-recent tokens.
//
// Cost: no scoring. Stores one gate per KV head. What it saves is fixed by the share of retrieval
// heads: it takes no budget.
//
// Fails where a head that was quiet in the calibration text is needed, and in models whose heads
// are all alike.
//
// Decided where the sources differ or are silent: gates are trained in the original (gradient
// descent on pass keys through the whole model), which no recording allows; `kvscope fit
// duoattention` measures what the paper defines a retrieval head by: how much its output changes
// when it sees sinks and window only. The gate is sqrt(sum |o - o'|^2 / sum |o|^2) over the group's
// query heads and fit-rows positions that the window cuts, at most 1. by=share (the code's sparsity
// is 1 - share) counts heads over all layers, equal gates by layer and head where the code adds
// noise; by=threshold takes gates of at least `threshold`. A chunk sees sinks, the n-recent keys up
// to its first query, and itself, as the code's chunked prefill does: later rows of a chunk see
// more than n-recent. Layers with a sliding window have no gate.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "core/base/error.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/selectors/calibration_rows.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/eviction.hpp"
#include "core/selectors/learned_heads.hpp"
#include "core/selectors/list_builders.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"

namespace kvscope {

namespace {

enum class DuoRule { share, threshold };

class DuoAttention final : public Selector {
 public:
  std::string gates_ =
      option(gates_, "gates", "",
             "a file of kvscope fit duoattention; without one, a calibration text is needed");
  DuoRule by_ =
      option(by_, "by", DuoRule::share,
             "retrieval heads are a share of all KV heads, or those with a gate of at least the "
             "threshold");
  double share_ = option(share_, "share", 0.5,
                         "share of the KV heads of all layers that see everything", in(0.0, 1.0));
  double threshold_ =
      option(threshold_, "threshold", 0.5, "least gate of a retrieval head", in(0.0, 1.0));
  Index n_sink_ =
      option(n_sink_, "n-sink", 128, "first tokens that streaming heads see", at_least(0));
  Index n_recent_ =
      option(n_recent_, "n-recent", 256,
             "latest tokens that streaming heads see, the first query's own included", at_least(1));
  Index fit_rows_ = option(fit_rows_, "fit-rows", 64, "fitting: positions whose output is compared",
                           in(1, 1 << 20));
  Index dense_layers_ = dense_layers_option(dense_layers_);

  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.is_static = true;
    caps.needs_calibration = !file_.is_named();
    // One fit serves all layers: their gates are compared.
    caps.cross_layer = caps.needs_calibration;
    caps.artifact_option = "gates";
    caps.dense_layers = dense_layers_;
    return caps;
  }

  void calibrate(const TraceSource& text, std::span<const Index>, ThreadPool& pool) override {
    const TraceInfo& info = text.info();
    // From here on the window leaves a key out.
    const Index n_cut = n_sink_ + n_recent_;
    if (info.n_tokens <= n_cut) {
      throw ConfigError(
          "duoattention: {} has {} tokens, expected more than n-sink + n-recent = {}: "
          "otherwise no head loses a key",
          text.where(), info.n_tokens, n_cut);
    }
    const std::vector<Index> layers = full_attention_layers(text, name());
    const std::vector<Index> positions = evenly_spaced(n_cut, info.n_tokens, fit_rows_);
    gates_of_heads_.clear();
    gates_of_heads_.learn(layers, info.n_kv, pool, [&](Index layer, Index kv_head) {
      return std::vector{measure_gate(text, layer, kv_head, positions)};
    });
    name_retrieval_heads();
  }

  Learned learned() const override {
    Learned out = gates_of_heads_.learned("gates", "");
    out.options = {{"n_sink", n_sink_}, {"n_recent", n_recent_}, {"fit_rows", fit_rows_}};
    const std::vector<Head> all = by_falling_gate();
    out.summary =
        all.empty()
            ? std::string("no gates")
            : fmt::format("gates of {} KV heads: smallest {:.3f}, median {:.3f}, largest {:.3f}",
                          all.size(), all.back().gate, all[(all.size() - 1) / 2].gate,
                          all.front().gate);
    return out;
  }
  std::vector<ArtifactOrigin> artifacts() const override { return file_.origins(); }

  void reset(const AttentionShape& shape) override {
    if (!file_.is_named()) return;
    gates_of_heads_.load(file_, "gates", shape, /*n=*/1);
    name_retrieval_heads();
  }

  Selection do_select(const SelectCall& call) override {
    std::vector<bool> retrieves;
    for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) {
      gates_of_heads_.of("duoattention", "gates", call, kv_head);
      retrieves.push_back(retrieves_.contains({call.layer, kv_head}));
    }
    if (std::find(retrieves.begin(), retrieves.end(), false) == retrieves.end())
      return alive_selection(call);
    const auto add = [&](const ListHeads& heads, ScoreWorker&, std::span<Selection> selections) {
      KeyList list;
      const TokenRange seen = call_range(call);
      if (retrieves[static_cast<std::size_t>(heads.kv_head)]) {
        append_range(list.forced, seen.begin, seen.end);
      } else {
        append_range(list.forced, seen.begin, std::min(n_sink_, seen.end));
        append_range(list.forced, std::max(seen.begin, call.pos_begin + 1 - n_recent_), seen.end);
      }
      remove_dead(call, heads.kv_head, list);
      selections.front().add(list);
    };
    return std::move(
        select_by_owner(call, ListOwner::kv_head, call.n_tok, /*n_selections=*/1, add).front());
  }

 private:
  /// How much the head's output changes without the keys between sinks and window.
  double measure_gate(const TraceSource& text, Index layer, Index kv_head,
                      std::span<const Index> positions) const {
    const Index d = text.info().d_head;
    const Tensor<float> v = text.read_v(layer, kv_head, {0, positions.back() + 1});
    double changed = 0.0;
    double whole = 0.0;
    std::vector<double> full(static_cast<std::size_t>(d));
    std::vector<double> streamed(full.size());
    visit_weight_rows(
        text, layer, kv_head, positions, [&](Index, Index index, std::span<const double> weights) {
          const Index pos = positions[static_cast<std::size_t>(index)];
          const Index first_recent = pos + 1 - n_recent_;
          std::fill(full.begin(), full.end(), 0.0);
          std::fill(streamed.begin(), streamed.end(), 0.0);
          double lost = 0.0;
          for (Index j = 0; j <= pos; ++j) {
            const double w = weights[static_cast<std::size_t>(j)];
            const auto value = v.view().row(j);
            const bool is_kept = j < n_sink_ || j >= first_recent;
            lost += is_kept ? 0.0 : w;
            for (std::size_t c = 0; c < full.size(); ++c) {
              const double part = w * static_cast<double>(value[c]);
              full[c] += part;
              if (is_kept) streamed[c] += part;
            }
          }
          const double scale =
              1.0 / std::max(1.0 - lost,
                             1e-300);  // the softmax runs over what is kept (and the layer's sink)
          for (std::size_t c = 0; c < full.size(); ++c) {
            const double difference = full[c] - scale * streamed[c];
            changed += difference * difference;
            whole += full[c] * full[c];
          }
        });
    return whole > 0.0 ? std::min(1.0, std::sqrt(changed / whole)) : 0.0;
  }

  struct Head {
    double gate;
    Index layer;
    Index kv_head;
  };
  /// Equal gates by layer and head.
  std::vector<Head> by_falling_gate() const {
    std::vector<Head> heads;
    for (const auto& [layer, gates] : gates_of_heads_.layers()) {
      for (const std::vector<double>& gate : gates)
        heads.push_back({gate.front(), layer, &gate - gates.data()});
    }
    std::ranges::stable_sort(heads, std::greater<>(), &Head::gate);
    return heads;
  }
  void name_retrieval_heads() {
    const std::vector<Head> heads = by_falling_gate();
    const auto n_by_share =
        static_cast<std::size_t>(std::lround(share_ * static_cast<double>(heads.size())));
    retrieves_.clear();
    for (std::size_t i = 0; i < heads.size(); ++i) {
      if (by_ == DuoRule::share ? i < n_by_share : heads[i].gate >= threshold_)
        retrieves_.emplace(heads[i].layer, heads[i].kv_head);
    }
  }

  ArtifactFile file_{"duoattention", gates_};
  LearnedHeads<double> gates_of_heads_;          // one number each
  std::set<std::pair<Index, Index>> retrieves_;  // (layer, KV head)
};

}  // namespace

void register_duoattention(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<DuoAttention>(
      "duoattention", "DuoAttention: retrieval and streaming heads", "arXiv 2410.10819",
      "some KV heads, found once per model, keep everything; the others keep the first and the "
      "latest tokens");
  entry.family = MethodFamily::budgets;
  entry.settings = {{.option = "share", .where = {{"by", "share"}}},
                    {.option = "threshold", .falls = true, .where = {{"by", "threshold"}}}};
  registry.say_lacking("duoattention", "trained gates: they are measured here");
}

}  // namespace kvscope
