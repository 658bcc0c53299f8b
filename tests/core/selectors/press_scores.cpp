#include "tests/core/selectors/press_scores.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace kvscope::test {

namespace {

using Row = std::vector<double>;

constexpr double kForced = std::numeric_limits<double>::max();

std::size_t at(Index i) {
  return static_cast<std::size_t>(i);
}

Row row_of(const Tensor<float>& tensor, Index head, Index pos) {
  Row row(at(tensor.dim(2)));
  for (Index c = 0; c < tensor.dim(2); ++c) row[at(c)] = static_cast<double>(tensor(head, pos, c));
  return row;
}

double dot(const Row& a, const Row& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

void softmax(Row& x) {
  const double largest = *std::max_element(x.begin(), x.end());
  for (double& value : x) value = std::exp(value - largest);
  const double sum = std::accumulate(x.begin(), x.end(), 0.0);
  for (double& value : x) value /= sum;
}

Scores zeros(const Prompt& prompt) {
  return Scores(at(prompt.k.dim(0)), Row(at(prompt.n_tok()), 0.0));
}

double largest_of(const Scores& scores) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const Row& head : scores)
    largest = std::max(largest, *std::max_element(head.begin(), head.end()));
  return largest;
}

/// Positions from the best score to the worst; equal scores by position.
std::vector<Index> by_score(const Row& scores) {
  std::vector<Index> order(scores.size());
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](Index a, Index b) { return scores[at(a)] > scores[at(b)]; });
  return order;
}

/// A query head's W_q hidden of one position, not rotated.
Row unrotated_query(const Prompt& prompt, Index q_head, Index pos) {
  const Index d = prompt.k.dim(2);
  Row q(at(d), 0.0);
  for (Index c = 0; c < d; ++c) {
    for (Index i = 0; i < prompt.hidden.dim(1); ++i) {
      q[at(c)] += static_cast<double>(prompt.w_q(q_head * d + c, i)) *
                  static_cast<double>(prompt.hidden(pos, i));
    }
  }
  return q;
}

/// A row times the mean of the rotations of n positions from `begin` on.
Row mean_rotation(const Prompt& prompt, const Row& x, Index begin, Index n) {
  const std::size_t half = x.size() / 2;
  Row out(x.size());
  for (std::size_t i = 0; i < half; ++i) {
    const double frequency =
        std::pow(prompt.rope_theta, -static_cast<double>(i) / static_cast<double>(half));
    double cosine = 0.0;
    double sine = 0.0;
    for (Index pos = begin; pos < begin + n; ++pos) {
      cosine += std::cos(static_cast<double>(pos) * frequency) / static_cast<double>(n);
      sine += std::sin(static_cast<double>(pos) * frequency) / static_cast<double>(n);
    }
    out[i] = cosine * x[i] - sine * x[i + half];
    out[i + half] = cosine * x[i + half] + sine * x[i];
  }
  return out;
}

/// Unevenness of the rows of one partition in the ranges of the next, softmaxed.
Row lag_weights(const Tensor<float>& x, Index head, Index begin, Index lag) {
  const Index d = x.dim(2);
  Row deviations;
  for (Index pos = begin; pos < begin + lag; ++pos) {
    Row inside;
    for (Index c = 0; c < d; ++c) {
      double low = std::numeric_limits<double>::infinity();
      double high = -low;
      for (Index next = begin + lag; next < begin + 2 * lag; ++next) {
        low = std::min(low, static_cast<double>(x(head, next, c)));
        high = std::max(high, static_cast<double>(x(head, next, c)));
      }
      inside.push_back((static_cast<double>(x(head, pos, c)) - low) / (high - low));
    }
    const double mean = std::accumulate(inside.begin(), inside.end(), 0.0) / static_cast<double>(d);
    double squares = 0.0;
    for (const double value : inside) squares += (value - mean) * (value - mean);
    deviations.push_back(std::sqrt(squares / static_cast<double>(d - 1)));
  }
  softmax(deviations);
  return deviations;
}

/// How many keys of each head are among the layer's n * n_kv best, and how many of them are safe.
struct Division {
  std::vector<Index> n_kept;
  Index n_safe = 0;
};

Division divided(const Scores& scores, Index n, double share) {
  const auto n_kv = static_cast<Index>(scores.size());
  Division division{std::vector<Index>(scores.size(), 0), 0};
  if (share > 0.0)
    division.n_safe = std::max<Index>(1, static_cast<Index>(static_cast<double>(n) * share));
  std::vector<std::pair<double, std::size_t>> all;
  for (std::size_t h = 0; h < scores.size(); ++h) {
    const std::vector<Index> order = by_score(scores[h]);
    for (Index i = 0; i < static_cast<Index>(order.size()); ++i)
      all.emplace_back(i < division.n_safe ? kForced : scores[h][at(order[at(i)])], h);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (Index i = 0; i < n * n_kv; ++i) ++division.n_kept[all[at(i)].second];
  return division;
}

}  // namespace

Scores knorm_scores(const Prompt& prompt) {
  Scores scores = zeros(prompt);
  for (Index h = 0; h < prompt.k.dim(0); ++h) {
    for (Index j = 0; j < prompt.n_tok(); ++j) {
      const Row key = row_of(prompt.k, h, j);
      scores[at(h)][at(j)] = -std::sqrt(dot(key, key));
    }
  }
  return scores;
}

Scores expected_attention_scores(const Prompt& prompt, const ExpectedAttentionRule& rule) {
  const Index n_tok = prompt.n_tok();
  const auto n = static_cast<double>(n_tok - rule.n_sink);
  const auto d = static_cast<double>(prompt.k.dim(2));
  Scores scores = zeros(prompt);
  for (Index q_head = 0; q_head < prompt.q.dim(0); ++q_head) {
    const Index h = q_head / prompt.group();
    // A rotation is linear, so that the mean and the covariance of turned queries are wanted.
    std::vector<Row> turned;
    Row mean(at(prompt.k.dim(2)), 0.0);
    for (Index pos = rule.n_sink; pos < n_tok; ++pos) {
      turned.push_back(
          mean_rotation(prompt, unrotated_query(prompt, q_head, pos), n_tok, rule.n_future));
      for (std::size_t c = 0; c < mean.size(); ++c) mean[c] += turned.back()[c] / n;
    }
    Row logits;
    for (Index j = rule.n_sink; j < n_tok; ++j) {
      const Row key = row_of(prompt.k, h, j);
      double variance = 0.0;  // of the queries' products with the key
      for (const Row& query : turned) variance += std::pow(dot(query, key) - dot(mean, key), 2) / n;
      logits.push_back(dot(mean, key) / std::sqrt(d) +
                       (rule.has_covariance ? variance / d / 2 : 0.0));
    }
    softmax(logits);
    for (Index j = rule.n_sink; j < n_tok; ++j) {
      scores[at(h)][at(j)] += logits[at(j - rule.n_sink)] / static_cast<double>(prompt.group());
    }
  }
  for (Index h = 0; rule.has_value_norm && h < prompt.k.dim(0); ++h) {
    for (Index j = rule.n_sink; j < n_tok; ++j) {
      const Row value = row_of(prompt.v, h, j);
      double& score = scores[at(h)][at(j)];
      score = (score + rule.eps) * std::sqrt(dot(value, value));
    }
  }
  const double largest = largest_of(scores);
  for (Row& head : scores) std::fill_n(head.begin(), rule.n_sink, largest + 1.0);
  return scores;
}

Scores lagkv_scores(const Prompt& prompt, const LagKvRule& rule) {
  const Index n_tok = prompt.n_tok();
  Scores scores(at(prompt.k.dim(0)), Row(at(n_tok), 1.0));
  const Index n_parts = (n_tok - rule.n_sink) / rule.lag;
  for (Index h = 0; h < prompt.k.dim(0); ++h) {
    Row& head = scores[at(h)];
    if (n_parts < 2) {  // sinks and the latest
      for (Index j = rule.n_sink; j < n_tok; ++j) {
        head[at(j)] =
            static_cast<double>(j - rule.n_sink) / static_cast<double>(n_tok - rule.n_sink);
      }
      continue;
    }
    for (Index part = 0; part + 1 < n_parts; ++part) {
      const Index begin = rule.n_sink + part * rule.lag;
      Row of_part = lag_weights(prompt.k, h, begin, rule.lag);
      const Row of_values = lag_weights(prompt.v, h, begin, rule.lag);
      for (std::size_t i = 0; i < of_part.size(); ++i) of_part[i] = (of_part[i] + of_values[i]) / 2;
      const std::vector<Index> order = by_score(of_part);
      for (Index i = 0; i < rule.lag; ++i) {
        const Index pos = order[at(i)];
        head[at(begin + pos)] =
            rule.is_cross ? of_part[at(pos)]
                          : static_cast<double>(rule.lag - 1 - i) / static_cast<double>(rule.lag);
      }
    }
  }
  return scores;
}

Scores filter_scores(const Prompt& prompt, const Tensor<float>& filters) {
  Scores scores = zeros(prompt);
  for (Index h = 0; h < prompt.k.dim(0); ++h) {
    for (Index j = 0; j < prompt.n_tok(); ++j) {
      for (Index c = 0; c < prompt.k.dim(2); ++c) {
        scores[at(h)][at(j)] -=
            static_cast<double>(filters(h, c)) * static_cast<double>(prompt.k(h, j, c));
      }
    }
  }
  return scores;
}

Scores snapkv_scores(const Prompt& prompt, Index window, Index kernel) {
  const Index n_old = prompt.n_tok() - window;
  const double scale = 1.0 / std::sqrt(static_cast<double>(prompt.k.dim(2)));
  Scores votes = zeros(prompt);
  for (Index q_head = 0; q_head < prompt.q.dim(0); ++q_head) {
    const Index h = q_head / prompt.group();
    for (Index pos = n_old; pos < prompt.n_tok(); ++pos) {
      Row weights;
      for (Index j = 0; j <= pos; ++j)
        weights.push_back(scale * dot(row_of(prompt.q, q_head, pos), row_of(prompt.k, h, j)));
      softmax(weights);
      for (Index j = 0; j < n_old; ++j) {
        votes[at(h)][at(j)] +=
            weights[at(j)] / static_cast<double>(window) / static_cast<double>(prompt.group());
      }
    }
  }
  Scores scores = zeros(prompt);
  for (std::size_t h = 0; h < scores.size(); ++h) {
    for (Index j = 0; j < n_old; ++j) {
      for (Index near = std::max<Index>(0, j - kernel / 2);
           near <= std::min(n_old - 1, j + kernel / 2); ++near)
        scores[h][at(j)] += votes[h][at(near)] / static_cast<double>(kernel);
    }
  }
  const double largest = largest_of(scores);
  for (Row& head : scores) std::fill(head.begin() + n_old, head.end(), largest + 1.0);
  return scores;
}

Scores projected_value_norms(const Prompt& prompt) {
  const Index d = prompt.k.dim(2);
  Scores norms = zeros(prompt);
  for (Index q_head = 0; q_head < prompt.q.dim(0); ++q_head) {
    const Index h = q_head / prompt.group();
    for (Index j = 0; j < prompt.n_tok(); ++j) {
      for (Index i = 0; i < prompt.w_o.dim(0); ++i) {
        double out = 0.0;
        for (Index c = 0; c < d; ++c) {
          out += static_cast<double>(prompt.w_o(i, q_head * d + c)) *
                 static_cast<double>(prompt.v(h, j, c));
        }
        norms[at(h)][at(j)] += std::abs(out) / static_cast<double>(prompt.group());
      }
    }
  }
  return norms;
}

Scores critical_scores(const Prompt& prompt, const Scores& inner, Index n_first, double eps) {
  const Scores norms = projected_value_norms(prompt);
  Scores scores = inner;
  for (std::size_t h = 0; h < scores.size(); ++h) {
    for (std::size_t j = 0; j < scores[h].size(); ++j)
      scores[h][j] = (inner[h][j] + eps) * norms[h][j];
    const std::vector<Index> order = by_score(inner[h]);
    for (Index i = 0; i < n_first; ++i) scores[h][at(order[at(i)])] = kForced;
  }
  return scores;
}

KeptKeys best_keys(const Scores& scores, Index n) {
  KeptKeys kept;
  for (const Row& head : scores) {
    std::vector<Index> order = by_score(head);
    std::sort(order.begin(), order.begin() + n);
    kept.emplace_back(order.begin(), order.begin() + n);
  }
  return kept;
}

KeptKeys ada_keys(const Scores& scores, Index n, double share) {
  const Division division = divided(scores, n, share);
  KeptKeys kept;
  for (std::size_t h = 0; h < scores.size(); ++h)
    kept.push_back(best_keys({scores[h]}, division.n_kept[h]).front());
  return kept;
}

KeptKeys critical_ada_keys(const Prompt& prompt, const Scores& scores, Index n, double share,
                           double first_part, double eps) {
  const Division division = divided(scores, n, share);
  KeptKeys kept;
  for (std::size_t h = 0; h < scores.size(); ++h) {
    const auto n_first = static_cast<Index>(static_cast<double>(division.n_kept[h]) * first_part);
    const Scores second = critical_scores(prompt, scores, std::max(division.n_safe, n_first), eps);
    kept.push_back(best_keys({second[h]}, division.n_kept[h]).front());
  }
  return kept;
}

std::vector<std::vector<Index>> think_channels(const Prompt& prompt, double dropped_share,
                                               Index window) {
  const Index d = prompt.k.dim(2);
  const auto n_dropped = static_cast<Index>(static_cast<double>(d) * dropped_share);
  std::vector<std::vector<Index>> kept;
  for (Index h = 0; h < prompt.k.dim(0); ++h) {
    Row scores;
    for (Index c = 0; c < d; ++c) {
      double of_queries = 0.0;  // the means' denominators are alike for all channels
      double of_keys = 0.0;
      for (Index q_head = h * prompt.group(); q_head < (h + 1) * prompt.group(); ++q_head) {
        for (Index pos = std::max<Index>(0, prompt.n_tok() - window); pos < prompt.n_tok(); ++pos)
          of_queries += std::pow(static_cast<double>(prompt.q(q_head, pos, c)), 2);
      }
      for (Index pos = 0; pos < prompt.n_tok(); ++pos)
        of_keys += std::pow(static_cast<double>(prompt.k(h, pos, c)), 2);
      scores.push_back(of_queries * of_keys);
    }
    std::vector<Index> order = by_score(scores);
    order.resize(at(d - n_dropped));
    std::sort(order.begin(), order.end());
    kept.push_back(std::move(order));
  }
  return kept;
}

}  // namespace kvscope::test
