#include "core/sim/attended.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "core/attention/visible.hpp"
#include "core/selectors/candidates.hpp"

namespace kvscope {

namespace {

std::vector<KeyPos> positions(TokenRange range) {
  std::vector<KeyPos> keys(static_cast<std::size_t>(range.size()));
  std::iota(keys.begin(), keys.end(), static_cast<KeyPos>(range.begin));
  return keys;
}

}  // namespace

std::span<const KeyPos> inside(std::span<const KeyPos> keys, TokenRange range) {
  if (keys.empty() || (keys.front() >= range.begin && keys.back() < range.end)) return keys;
  const auto first = std::lower_bound(keys.begin(), keys.end(), range.begin);
  return {first, std::lower_bound(first, keys.end(), range.end)};
}

std::vector<KeyPos> attended_keys(const Selection& selection, Index group, Index q_head,
                                  Index pos_begin, Index row, std::optional<Index> window) {
  const TokenRange visible = visible_keys(pos_begin + row, window);
  if (selection.is_dense) return positions(visible);
  const KeyList& list = selection.list(owner_of(selection.owner, q_head, group), row);
  const auto scored = inside(list.scored, visible);
  const auto forced = inside(list.forced, visible);
  std::vector<KeyPos> keys(scored.size() + forced.size());
  std::merge(scored.begin(), scored.end(), forced.begin(), forced.end(), keys.begin());
  return keys;
}

ListProbs::ListProbs(const SelectCall& call, const Selection& selection)
    : call_(call), selection_(selection), group_(call.q.dim(0) / call.k.dim(0)) {
  layer = call.layer;
  pos_begin = call.pos_begin;
  n_tok = call.n_tok;
}

const ListProbs::Gathered& ListProbs::gathered(Index q_head, Index row) const {
  const Index kv_head = q_head / group_;
  const KeyList* list = selection_.is_dense
                            ? nullptr
                            : &selection_.list(owner_of(selection_.owner, q_head, group_), row);
  if (gathered_ && gathered_->list == list && gathered_->kv_head == kv_head) return *gathered_;
  gathered_ = Gathered{kv_head, list, /*keys=*/{}, /*table=*/std::nullopt};
  const TensorView<const float> k = call_.k.sub(kv_head);
  gathered_->keys = list == nullptr ? positions({0, k.dim(0)}) : merged(*list);
  Tensor<float> rows(Shape{static_cast<Index>(gathered_->keys.size()), k.dim(1)});
  for (std::size_t i = 0; i < gathered_->keys.size(); ++i) {
    const auto key = k.row(gathered_->keys[i]);
    std::copy(key.begin(), key.end(), rows.data() + static_cast<Index>(i) * k.dim(1));
  }
  gathered_->table.emplace(rows.view());
  return *gathered_;
}

void ListProbs::row(Index q_head, Index row, std::span<float> probs) const {
  assert(static_cast<Index>(probs.size()) == call_.k.dim(1));
  std::fill(probs.begin(), probs.end(), 0.0f);
  const Gathered& list = gathered(q_head, row);
  const auto visible = inside(list.keys, visible_keys(call_.pos_begin + row, call_.window));
  if (visible.empty()) return;
  const Index first = visible.data() - list.keys.data();
  const TokenRange range{first, first + static_cast<Index>(visible.size())};
  const auto scale = static_cast<double>(call_.score_scale);
  scores_.compute(widened(call_.q.sub(q_head).row(row), scale), /*n_rows=*/1, *list.table, range);
  const std::span<double> weights = scores_.row(0, range);
  softmax_in_place(weights, sink_of(call_, q_head));
  for (std::size_t i = 0; i < visible.size(); ++i) {
    probs[static_cast<std::size_t>(visible[i])] = static_cast<float>(weights[i]);
  }
}

}  // namespace kvscope
