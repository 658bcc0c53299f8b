// Synthetic traces with known attention: seeded Gaussians, a sink, a local band, needles, ties and
// zero keys.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "core/trace/memory_trace.hpp"

namespace kvscope::test {

/// A small generator with its own normal distribution: the same numbers with every standard
/// library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  double uniform();  // [0, 1)
  double normal();
  Index below(Index n);  // [0, n)

 private:
  std::uint64_t next();
  std::uint64_t state_;
};

/// A key that some queries are aimed at.
struct Needle {
  Index key = 0;
  Index first_query = 0;  // queries [first_query, last_query) point to it
  Index last_query = 0;
};

struct PlantOptions {
  Index n_layers = 2;
  Index n_q = 4;
  Index n_kv = 2;
  Index d_head = 8;
  Index n_tokens = 64;
  Index chunk = 16;
  double key_scale = 1.0;  // standard deviation of every channel
  double query_scale = 1.0;
  double sink = 0.0;    // every query gets this much along the direction of key 0
  double band = 0.0;    // and this much along its own position's key
  double aim = 0.0;     // and this much along its needle, for the queries that have one
  double common = 0.0;  // every key gets this much along one direction of its head, a needle's key
                        // the other way: needles look unlike all other keys
  std::vector<Needle> needles;
  std::vector<std::pair<Index, Index>> duplicates;  // key .second becomes a copy of key .first
  std::vector<Index> zero_keys;
  bool has_sink_logits = false;  // every query head gets an attention sink (a logit without a key)
  double score_cap = 0.0;        // the model's soft cap of scores; 0 = none
  std::uint64_t seed = 1;
};

/// q, k and v of every layer and head, tokens 0, 1, 2, ...; lse is left at zero. change: of what
/// the trace says of itself (windows, the prompt's length), after which the same is planted.
MemoryTrace planted_trace(const PlantOptions& options,
                          const std::function<void(TraceInfo&)>& change = nullptr);

/// Exact attention row by three loops in f64 over the visible keys: element t belongs to
/// visible_begin + t. Where the head has a sink, the row sums to less than 1.
std::vector<double> naive_row(const TraceSource& trace, Index layer, Index q_head, Index pos);

/// Scaled scores of the same row.
std::vector<double> naive_scores(const TraceSource& trace, Index layer, Index q_head, Index pos);

/// First visible key of a query in a layer.
Index naive_first_visible(const TraceSource& trace, Index layer, Index pos);

}  // namespace kvscope::test

namespace kvscope {

using test::planted_trace;
using test::PlantOptions;
using test::Random;

}  // namespace kvscope
