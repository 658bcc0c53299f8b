// What the GPU's kernels are compared with: the methods' rules written naively in f64, without
// CUDA and without the rest of kvscope.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace kvscope::test {

/// One sequence of a batch: q [n_q, n_tok, d], k and v [n_kv, n_past + n_tok, d], as the device
/// sees them.
struct Sequence1 {
  int n_q = 0, n_kv = 0, d = 0, n_past = 0, n_tok = 0;
  std::vector<float> q, k, v;
  double scale = 1.0;
  int n_ctx() const { return n_past + n_tok; }
  int group() const { return n_q / n_kv; }
  const float* q_row(int head, int row) const {
    return q.data() + (static_cast<std::size_t>(head) * n_tok + row) * d;
  }
  const float* k_row(int head, int pos) const {
    return k.data() + (static_cast<std::size_t>(head) * n_ctx() + pos) * d;
  }
  const float* v_row(int head, int pos) const {
    return v.data() + (static_cast<std::size_t>(head) * n_ctx() + pos) * d;
  }
};

inline std::uint16_t bf16_from(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
inline float float_from(std::uint16_t half) {
  const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

/// How values of a test are drawn.
enum class Draw {
  normal,
  ties,    // whole numbers from -1 to 1: many equal scores
  copies,  // every key is one of four: thousands of equal scores
};

inline Sequence1 random_sequence(int n_q, int n_kv, int d, int n_past, int n_tok, unsigned seed,
                                 Draw draw, bool is_bf16) {
  Sequence1 s;
  s.n_q = n_q, s.n_kv = n_kv, s.d = d, s.n_past = n_past, s.n_tok = n_tok;
  s.scale = 1.0 / std::sqrt(static_cast<double>(d));
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>& x, std::size_t n, bool has_ties) {
    x.resize(n);
    for (float& value : x) {
      value = normal(rng);
      if (has_ties) value = std::clamp(std::round(value), -1.0f, 1.0f);
      if (is_bf16) value = float_from(bf16_from(value));
    }
  };
  const auto rows = static_cast<std::size_t>(s.n_ctx()) * d;
  fill(s.q, static_cast<std::size_t>(n_q) * n_tok * d, draw != Draw::normal);
  fill(s.k, n_kv * rows, draw != Draw::normal);
  fill(s.v, n_kv * rows, false);
  if (draw == Draw::copies) {
    for (int head = 0; head < n_kv; ++head) {
      for (int pos = 4; pos < s.n_ctx(); ++pos)
        std::copy_n(s.k_row(head, pos % 4), d, const_cast<float*>(s.k_row(head, pos)));
    }
  }
  return s;
}

inline double dot(const float* a, const float* b, int d) {
  double sum = 0.0;
  for (int c = 0; c < d; ++c) sum += static_cast<double>(a[c]) * static_cast<double>(b[c]);
  return sum;
}

/// The k best indices, ascending; equal scores: the lower index.
inline std::vector<int> best_of(const std::vector<double>& scores, int k) {
  std::vector<int> order(scores.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return scores[a] > scores[b]; });
  order.resize(static_cast<std::size_t>(std::clamp(k, 0, static_cast<int>(order.size()))));
  std::sort(order.begin(), order.end());
  return order;
}

/// QuoKA: rows of the chunk per query head, lowest cosine first.
inline std::vector<std::vector<int>> quoka_picks(const Sequence1& s, int n_queries, double eps) {
  std::vector<std::vector<int>> picks;
  for (int head = 0; head < s.n_q; ++head) {
    std::vector<int> order(static_cast<std::size_t>(s.n_tok));
    for (int i = 0; i < s.n_tok; ++i) order[i] = i;
    if (s.n_tok > n_queries) {
      std::vector<double> mean(static_cast<std::size_t>(s.d), 0.0);
      for (int i = 0; i < s.n_tok; ++i) {
        for (int c = 0; c < s.d; ++c) mean[c] += static_cast<double>(s.q_row(head, i)[c]);
      }
      double square = 0.0;
      for (double& m : mean) m /= s.n_tok, square += m * m;
      std::vector<double> cosine;
      for (int i = 0; i < s.n_tok; ++i) {
        const float* row = s.q_row(head, i);
        double product = 0.0;
        for (int c = 0; c < s.d; ++c) product += static_cast<double>(row[c]) * mean[c];
        cosine.push_back(product * (1.0 / std::max(std::sqrt(square), eps)) *
                         (1.0 / std::max(std::sqrt(dot(row, row, s.d)), eps)));
      }
      std::stable_sort(order.begin(), order.end(),
                       [&](int a, int b) { return cosine[a] < cosine[b]; });
      order.resize(static_cast<std::size_t>(n_queries));
    }
    picks.push_back(order);
  }
  return picks;
}

/// QuoKA: the score of every key before the call, of one KV head.
inline std::vector<double> quoka_scores(const Sequence1& s,
                                        const std::vector<std::vector<int>>& picks, int kv_head,
                                        double eps) {
  const std::size_t n_slots = picks[0].size();
  std::vector<double> slots(n_slots * static_cast<std::size_t>(s.d), 0.0);
  for (int h = 0; h < s.group(); ++h) {
    const int head = kv_head * s.group() + h;
    for (std::size_t j = 0; j < n_slots; ++j) {
      const float* row = s.q_row(head, picks[head][j]);
      const double factor = 1.0 / std::max(std::sqrt(dot(row, row, s.d)), eps) / s.group();
      for (int c = 0; c < s.d; ++c)
        slots[j * static_cast<std::size_t>(s.d) + static_cast<std::size_t>(c)] +=
            factor * static_cast<double>(row[c]);
    }
  }
  std::vector<double> scores;
  for (int pos = 0; pos < s.n_past; ++pos) {
    const float* key = s.k_row(kv_head, pos);
    double best = -std::numeric_limits<double>::infinity();
    for (std::size_t j = 0; j < n_slots; ++j) {
      double product = 0.0;
      for (int c = 0; c < s.d; ++c)
        product += slots[j * static_cast<std::size_t>(s.d) + static_cast<std::size_t>(c)] *
                   static_cast<double>(key[c]);
      best = std::max(best, product);
    }
    scores.push_back(best / std::max(std::sqrt(dot(key, key, s.d)), eps));
  }
  return scores;
}

/// Quest: the bound of every page of the context, for one row of a query head.
inline std::vector<double> quest_bounds(const Sequence1& s, int q_head, int page_size,
                                        int row = 0) {
  std::vector<double> bounds;
  for (int first = 0; first < s.n_ctx(); first += page_size) {
    double bound = 0.0;
    for (int c = 0; c < s.d; ++c) {
      const float q = s.q_row(q_head, row)[c];
      double best = -std::numeric_limits<double>::infinity();
      for (int pos = first; pos < std::min(first + page_size, s.n_ctx()); ++pos)
        best = std::max(best, static_cast<double>(q) *
                                  static_cast<double>(s.k_row(q_head / s.group(), pos)[c]));
      bound += best;
    }
    bounds.push_back(bound);
  }
  return bounds;
}

/// Exact scores of a row with all keys of the context, those that it does not see included.
inline std::vector<double> row_scores(const Sequence1& s, int q_head, int row) {
  std::vector<double> scores;
  for (int pos = 0; pos < s.n_ctx(); ++pos)
    scores.push_back(s.scale * dot(s.q_row(q_head, row), s.k_row(q_head / s.group(), pos), s.d));
  return scores;
}

/// Softmax weights of a row over the keys that it sees of a list (empty: of all). [n_ctx]
inline std::vector<double> row_weights(const Sequence1& s, int q_head, int row,
                                       const std::vector<int>& list = {}) {
  const std::vector<double> scores = row_scores(s, q_head, row);
  std::vector<int> seen;
  const int n_listed = list.empty() ? s.n_ctx() : static_cast<int>(list.size());
  for (int i = 0; i < n_listed; ++i) {
    const int pos = list.empty() ? i : list[i];
    if (pos <= s.n_past + row) seen.push_back(pos);
  }
  double largest = -std::numeric_limits<double>::infinity();
  for (const int pos : seen) largest = std::max(largest, scores[pos]);
  double total = 0.0;
  for (const int pos : seen) total += std::exp(scores[pos] - largest);
  std::vector<double> weights(static_cast<std::size_t>(s.n_ctx()), 0.0);
  for (const int pos : seen) weights[pos] = std::exp(scores[pos] - largest) / total;
  return weights;
}

/// The same of rows [first_row, end_row), their sum over the rows and the heads of a KV head.
/// [n_ctx]
inline std::vector<double> joined_weights(const Sequence1& s, int kv_head, int first_row,
                                          int end_row, const std::vector<int>& list = {}) {
  std::vector<double> joined(static_cast<std::size_t>(s.n_ctx()), 0.0);
  for (int head = kv_head * s.group(); head < (kv_head + 1) * s.group(); ++head) {
    for (int row = first_row; row < end_row; ++row) {
      const std::vector<double> weights = row_weights(s, head, row, list);
      for (std::size_t i = 0; i < joined.size(); ++i) joined[i] += weights[i];
    }
  }
  return joined;
}

/// The cosine of each listed key with the mean of them, as unit keys or as they are.
inline std::vector<double> mean_cosines(const Sequence1& s, int kv_head,
                                        const std::vector<int>& list, bool takes_unit, double eps) {
  std::vector<double> mean(static_cast<std::size_t>(s.d), 0.0);
  const auto norm = [&](int pos) {
    const float* key = s.k_row(kv_head, pos);
    return std::max(std::sqrt(dot(key, key, s.d)), eps);
  };
  for (const int pos : list) {
    const double weight = (takes_unit ? 1.0 / norm(pos) : 1.0) / static_cast<double>(list.size());
    for (int c = 0; c < s.d; ++c) mean[c] += weight * static_cast<double>(s.k_row(kv_head, pos)[c]);
  }
  double square = 0.0;
  for (const double x : mean) square += x * x;
  std::vector<double> cosines;
  for (const int pos : list) {
    double product = 0.0;
    for (int c = 0; c < s.d; ++c)
      product += mean[c] * static_cast<double>(s.k_row(kv_head, pos)[c]);
    cosines.push_back(product / norm(pos) / std::max(std::sqrt(square), eps));
  }
  return cosines;
}

/// What is kept of n_pages by which rule: how many compete, how many of them stay, and the last
/// page.
struct PageCounts {
  int n_scored = 0, n_kept = 0;
  bool keeps_last = false;
};
enum class Rule { eval, kernel, frontier, hub };
inline PageCounts page_counts(Rule rule, int budget, int page_size, int n_keys) {
  const int n_pages = (n_keys + page_size - 1) / page_size;
  const bool keeps_last = rule == Rule::kernel || rule == Rule::frontier;
  int kept = n_pages;
  if (budget < n_keys) {
    if (rule == Rule::eval) kept = std::min(std::max(3, budget / page_size), n_pages);
    if (rule == Rule::kernel) kept = std::min(std::max(1, budget / page_size), n_pages);
    if (rule == Rule::frontier) kept = budget / page_size;
    if (rule == Rule::hub) kept = std::max(1, (budget + page_size - 1) / page_size);
  }
  const int n_scored = keeps_last ? n_pages - 1 : n_pages;
  return {n_scored, std::min(rule == Rule::kernel ? kept - 1 : kept, n_scored), keeps_last};
}

/// softmax(scale q k^T) v of one row over these keys. lse -infinity and zeros over none.
struct RowOutput {
  std::vector<double> out;
  double lse = -std::numeric_limits<double>::infinity();
};
/// What a layer has beside a plain softmax.
struct RowRule {
  double score_cap = 0.0;    // 0: none
  std::vector<float> sinks;  // per query head, or none
};
inline RowOutput attend_row(const Sequence1& s, int q_head, int row, const std::vector<int>& keys,
                            const RowRule& rule = {}) {
  RowOutput output;
  output.out.assign(static_cast<std::size_t>(s.d), 0.0);
  const int kv_head = q_head / s.group();
  std::vector<double> score;
  double largest = -std::numeric_limits<double>::infinity();
  for (const int pos : keys) {
    const double product = s.scale * dot(s.q_row(q_head, row), s.k_row(kv_head, pos), s.d);
    score.push_back(rule.score_cap > 0.0 ? rule.score_cap * std::tanh(product / rule.score_cap)
                                         : product);
    largest = std::max(largest, score.back());
  }
  if (keys.empty()) return output;
  double total = 0.0;
  if (!rule.sinks.empty()) {
    const auto sink = static_cast<double>(rule.sinks[q_head]);
    largest = std::max(largest, sink);
    total = std::exp(sink - largest);
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const double weight = std::exp(score[i] - largest);
    total += weight;
    const float* value = s.v_row(kv_head, keys[i]);
    for (int c = 0; c < s.d; ++c) output.out[c] += weight * static_cast<double>(value[c]);
  }
  for (double& x : output.out) x /= total;
  output.lse = largest + std::log(total);
  return output;
}

}  // namespace kvscope::test
