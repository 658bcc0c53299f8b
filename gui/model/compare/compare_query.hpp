// One query under two answers: which keys both keep and which only one does; and the attention of
// two models on the same tokens.
#pragma once

#include <string>
#include <vector>

#include "gui/model/map/attention_row.hpp"
#include "gui/model/methods/kept_rows.hpp"

namespace kvscope::gui {

/// Keys of one part, and the dense attention on them.
struct KeyPart {
  std::vector<KeyPos> keys;  // ascending
  double mass = 0.0;
};

/// What A and B keep for one query.
struct QueryKeys {
  AttentionRow row;  // dense attention of the query, of A's trace
  KeyPart both;
  KeyPart only_a;
  KeyPart only_b;
  double jaccard = 1.0;  // |both| / |any|; 1 if neither keeps a key
  std::size_t bytes() const;
  double mass_a() const { return both.mass + only_a.mass; }
  double mass_b() const { return both.mass + only_b.mass; }
};

/// `a`, `b`: attended keys, ascending.
QueryKeys split_keys(AttentionRow row, const std::vector<KeyPos>& a, const std::vector<KeyPos>& b);

/// Of the query at `query`, or the nearest one that both measured; `layer`, `q_head`: of the row.
/// Throws ConfigError if both measured no common query, and what attention_row throws.
QueryKeys compare_query_keys(const TraceSource& trace, Index layer, Index q_head, const KeptRows& a,
                             const KeptRows& b, Index query);

/// Attention rows of one query in two traces of the same tokens.
struct RowDifference {
  AttentionRow a;
  AttentionRow b;
  TokenRange visible;             // of either
  std::vector<float> difference;  // [visible.size()], a - b
  double total_variation = 0.0;   // sum |a - b| / 2; a learned sink counts as one more key
  double kl_a_b = 0.0;            // KL(A || B), nats; infinite where B cannot look and A does
  double kl_b_a = 0.0;
  /// Some weights are too small for float32: the KLs take the smallest float for them, and are
  /// lower bounds.
  bool has_underflow = false;
  std::size_t bytes() const;
};

RowDifference compare_rows(AttentionRow a, AttentionRow b);

/// A key of interest, for lists beside a figure.
struct NotedKey {
  Index pos = 0;
  double a = 0.0;  // attention of A's row
  double b = 0.0;  // of B's row; of two traces only
  enum class Part { both, only_a, only_b } part = Part::both;
};

/// Keys that only one side keeps, the most attended first.
std::vector<NotedKey> most_attended_differences(const QueryKeys& query, std::size_t n);

/// Keys whose attention differs most.
std::vector<NotedKey> largest_differences(const RowDifference& rows, std::size_t n);

}  // namespace kvscope::gui
