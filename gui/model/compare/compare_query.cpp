#include "gui/model/compare/compare_query.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/base/error.hpp"

namespace kvscope::gui {

namespace {

/// Terms of KL(p || q) in nats. Weights that a range sees but float32 cannot hold count as its
/// smallest number; what a range does not see has probability 0.
class Divergence {
 public:
  void add(double p, bool q_is_visible, double q) {
    if (!(p > 0.0)) return;
    if (q_is_visible && !(q > 0.0)) {
      q = static_cast<double>(std::numeric_limits<float>::denorm_min());
      has_underflow_ = true;
    }
    sum_ += q > 0.0 ? p * std::log(p / q) : std::numeric_limits<double>::infinity();
  }
  /// Rounding may leave -1e-9 for equal rows.
  double value() const { return std::max(0.0, sum_); }
  bool has_underflow() const { return has_underflow_; }

 private:
  double sum_ = 0.0;
  bool has_underflow_ = false;
};

bool sees(const AttentionRow& row, Index pos) {
  return pos >= row.visible.begin && pos < row.visible.end;
}

}  // namespace

std::size_t QueryKeys::bytes() const {
  return sizeof *this + row.bytes() +
         (both.keys.size() + only_a.keys.size() + only_b.keys.size()) * sizeof(KeyPos);
}

std::size_t RowDifference::bytes() const {
  return sizeof *this + a.bytes() + b.bytes() + difference.size() * sizeof(float);
}

QueryKeys split_keys(AttentionRow row, const std::vector<KeyPos>& a, const std::vector<KeyPos>& b) {
  QueryKeys query;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(),
                        std::back_inserter(query.both.keys));
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(),
                      std::back_inserter(query.only_a.keys));
  std::set_difference(b.begin(), b.end(), a.begin(), a.end(),
                      std::back_inserter(query.only_b.keys));
  for (KeyPart* part : {&query.both, &query.only_a, &query.only_b}) {
    for (const KeyPos key : part->keys) part->mass += row.prob(key);
  }
  query.jaccard = jaccard(a, b);
  query.row = std::move(row);
  return query;
}

QueryKeys compare_query_keys(const TraceSource& trace, Index layer, Index q_head, const KeptRows& a,
                             const KeptRows& b, Index query) {
  const KeptRow* left = a.nearest(query);
  const KeptRow* right = left != nullptr ? b.nearest(left->pos) : nullptr;
  if (right == nullptr || left->pos != right->pos) {
    throw ConfigError("no query near position {} was measured on both sides: choose another one",
                      query);
  }
  return split_keys(attention_row(trace, layer, q_head, left->pos), left->keys, right->keys);
}

RowDifference compare_rows(AttentionRow a, AttentionRow b) {
  RowDifference out;
  out.visible = {std::min(a.visible.begin, b.visible.begin),
                 std::max(a.visible.end, b.visible.end)};
  double distance = std::abs(a.sink_weight - b.sink_weight);
  Divergence a_b;
  Divergence b_a;
  a_b.add(a.sink_weight, /*q_is_visible=*/b.sink_weight > 0.0, b.sink_weight);
  b_a.add(b.sink_weight, /*q_is_visible=*/a.sink_weight > 0.0, a.sink_weight);
  for (Index pos = out.visible.begin; pos < out.visible.end; ++pos) {
    const double p = a.prob(pos);
    const double q = b.prob(pos);
    out.difference.push_back(static_cast<float>(p - q));
    distance += std::abs(p - q);
    a_b.add(p, sees(b, pos), q);
    b_a.add(q, sees(a, pos), p);
  }
  out.total_variation = 0.5 * distance;
  out.kl_a_b = a_b.value();
  out.kl_b_a = b_a.value();
  out.has_underflow = a_b.has_underflow() || b_a.has_underflow();
  out.a = std::move(a);
  out.b = std::move(b);
  return out;
}

std::vector<NotedKey> most_attended_differences(const QueryKeys& query, std::size_t n) {
  std::vector<NotedKey> noted;
  const auto add = [&](const KeyPart& part, NotedKey::Part name) {
    for (const KeyPos key : part.keys) noted.push_back({key, query.row.prob(key), 0.0, name});
  };
  add(query.only_a, NotedKey::Part::only_a);
  add(query.only_b, NotedKey::Part::only_b);
  std::ranges::sort(noted, [](const NotedKey& x, const NotedKey& y) {
    return x.a != y.a ? x.a > y.a : x.pos < y.pos;
  });
  noted.resize(std::min(n, noted.size()));
  return noted;
}

std::vector<NotedKey> largest_differences(const RowDifference& rows, std::size_t n) {
  std::vector<std::size_t> order(rows.difference.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t n_shown = std::min(n, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n_shown),
                    order.end(), [&](std::size_t x, std::size_t y) {
                      const float dx = std::abs(rows.difference[x]);
                      const float dy = std::abs(rows.difference[y]);
                      return dx != dy ? dx > dy : x < y;
                    });
  std::vector<NotedKey> noted;
  for (std::size_t i = 0; i < n_shown; ++i) {
    const Index pos = rows.visible.begin + static_cast<Index>(order[i]);
    noted.push_back({pos, rows.a.prob(pos), rows.b.prob(pos), NotedKey::Part::both});
  }
  return noted;
}

}  // namespace kvscope::gui
