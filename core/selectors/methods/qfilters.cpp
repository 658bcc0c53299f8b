// qfilters: evict the keys that lie against the main direction of the queries (Godey et al.,
// Q-Filters, arXiv 2503.02812; official code, kvpress).
//
// Idea: queries of a head share a direction, u, on which nearly all of them project with one sign;
// a key's product with it says how much attention it will get on the average. The filter of a KV
// head is the mean of its query heads' directions, learned once on a calibration text (the first
// right singular vector of the queries, not centred, with the sign that most queries have); after
// each call the keys with the largest product stay. Cost per call and KV head with n alive keys:
// 2 n d FLOPs and one read of them; by definition each key's product could be kept. Stores n_kv d
// elements per layer. Fails where the query of the day is unlike the others. Decided where the
// sources differ: nothing is protected, as in kvpress; `recent` keeps the latest keys, as the
// authors' cache does. All queries of the text count (the authors draw 3000), after rotation. The
// mean of unit directions is not made unit again.
#include "core/selectors/artifact.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/eviction.hpp"
#include "core/selectors/learned_heads.hpp"
#include "core/selectors/linear_scores.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"
#include "core/tensor/principal_axes.hpp"

namespace kvscope {

namespace {

class QFilters final : public EvictingMethod {
 public:
  Index recent_ = latest_keys_option(recent_);
  std::string filters_ = option(
      filters_, "filters", "",
      "a file of kvscope fit qfilters; without it the method learns from a calibration text");

  SelectorCaps caps() const override {
    return evicting({.needs_calibration = !file_.is_named(), .artifact_option = "filters"});
  }
  void calibrate(const TraceSource& text, std::span<const Index> layers,
                 ThreadPool& pool) override {
    const TraceInfo& info = text.info();
    heads_.learn(layers, info.n_kv, pool, [&](Index layer, Index kv_head) {
      std::vector<double> filter(static_cast<std::size_t>(info.d_head), 0.0);
      const double share = 1.0 / static_cast<double>(info.group());
      for (Index head = kv_head * info.group(); head < (kv_head + 1) * info.group(); ++head) {
        const Tensor<float> q = text.read_q(layer, head, info.rows);
        const std::vector<double> main = main_direction(q.view());
        for (std::size_t c = 0; c < filter.size(); ++c) filter[c] += share * main[c];
      }
      return filter;
    });
  }
  Learned learned() const override {
    return heads_.learned("filters", "the main direction of the queries");
  }
  std::vector<ArtifactOrigin> artifacts() const override { return file_.origins(); }
  void reset(const AttentionShape& shape) override {
    if (file_.is_named()) heads_.load(file_, "filters", shape, shape.d_head);
  }
  HostRows host_rows() const override { return HostRows::none; }
  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    return channels_cost(call, attended_keys_of(call, selection), /*flops=*/2.0, /*elements=*/1.0) +
           held_cost(static_cast<double>(call.k.dim(0) * call.k.dim(2)));
  }

 protected:
  Index n_recent(Index) const override { return recent_; }
  KeyValues scores(const SelectCall& call, const KeyLists& keys) override {
    std::vector<double> filters;
    for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) {
      const auto filter = heads_.of_channels("qfilters", "filters", call, kv_head);
      filters.insert(filters.end(), filter.begin(), filter.end());
    }
    const TokenRange all{0, call.k.dim(1)};
    KeyValues products(keys.size(), std::vector<double>(static_cast<std::size_t>(all.size())));
    const std::vector<std::span<double>> rows(products.begin(), products.end());
    linear_scores(call, filters, all, rows);
    for (std::size_t i = 0; i < keys.size(); ++i) products[i] = values_at(products[i], keys[i]);
    return products;
  }

 private:
  LearnedHeads<double> heads_;
  ArtifactFile file_{"qfilters", filters_};
};

}  // namespace

void register_qfilters(SelectorRegistry& registry) {
  registry.add<QFilters>("qfilters", "Q-Filters: eviction by the queries' main direction",
                         "arXiv 2503.02812",
                         "evicts the keys that lie against the direction that queries share");
}

}  // namespace kvscope
