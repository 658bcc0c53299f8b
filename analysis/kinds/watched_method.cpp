#include "analysis/kinds/watched_method.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/attention/exact_rows.hpp"

namespace kvscope {

namespace {

class WatchedSelector final : public Selector {
 public:
  WatchedSelector(std::unique_ptr<Selector> method, const WatchMethod& watch)
      : method_(std::move(method)), watch_(watch) {}
  std::string_view name() const override { return method_->name(); }
  SelectorCaps caps() const override { return method_->caps(); }
  void calibrate(const TraceSource& text, std::span<const Index> layers,
                 ThreadPool& pool) override {
    method_->calibrate(text, layers, pool);
  }
  void reset(const AttentionShape& shape) override { method_->reset(shape); }
  Selection select(const SelectCall& call) override { return watch_(*method_, call); }
  void observe(const SelectCall& call, const ObservedProbs& probs) override {
    method_->observe(call, probs);
  }
  void evict(const SelectCall& call, AliveMask& alive) override { method_->evict(call, alive); }
  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    return method_->cost(call, selection);
  }
  bool remembers() const override { return method_->remembers(); }

 private:
  std::unique_ptr<Selector> method_;
  const WatchMethod& watch_;
};

}  // namespace

WatchedMethod::WatchedMethod(const MethodSpec& method, WatchMethod watch)
    : watch_(std::move(watch)) {
  SelectorEntry entry;
  entry.name = entry.title = method.stages().front().method->name;  // for messages
  entry.caps = method.caps();
  entry.make = [this, method](const SelectorOptions&) {
    return std::make_unique<WatchedSelector>(method.make(), watch_);
  };
  const std::string name = entry.name;
  registry_.put(std::move(entry));
  spec_ = MethodSpec::parse(registry_, name);
}

std::vector<double> last_row_weights(const SelectCall& call, Index q_head) {
  const Index group = call.q.dim(0) / call.k.dim(0);
  const Index position = call.pos_begin + call.n_tok - 1;
  const KeyTable keys(call.k.sub(q_head / group));
  std::vector<double> weights;
  ScoreRows scratch;
  const Index positions[] = {position};
  visit_score_rows(
      {call.q.sub(q_head), call.pos_begin, keys, call.score_rule(), /*window=*/std::nullopt},
      positions, scratch, [&](Index, std::span<double> scores, TokenRange) {
        weights.assign(scores.begin(), scores.end());
      });
  softmax_in_place(
      weights,
      call.sink_logits.empty()
          ? std::nullopt
          : std::optional(static_cast<double>(call.sink_logits[static_cast<std::size_t>(q_head)])));
  return weights;
}

}  // namespace kvscope
