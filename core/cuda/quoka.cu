#include "core/cuda/quoka.hpp"

#include <algorithm>
#include <string>

#include "core/cuda/quoka_queries.cuh"
#include "core/cuda/row_scores.cuh"
#include "core/cuda/scratch.hpp"
#include "core/cuda/top_lists.cuh"

namespace kvscope::gpu {

namespace {

[[noreturn]] void refuse(const std::string& expected, long long found) {
  throw ShapeError("QuoKA on the GPU: expected " + expected + ", found " + std::to_string(found));
}

/// Places of a row of scores: a multiple of four.
std::int64_t stride_of(const CallShape& shape) {
  return (shape.capacity + 3) / 4 * 4;
}

void check_options(const CallShape& shape, const QuokaOptions& options) {
  check_shape(shape);
  if (options.n_queries < 1 || options.n_queries > kMostVectors)
    refuse("1 to " + std::to_string(kMostVectors) + " queries of a chunk", options.n_queries);
  if (options.budget < 1) refuse("a budget of at least one key", options.budget);
  if (options.most_tok < 1 || options.most_tok > 1024)
    refuse("chunks of 1 to 1024 tokens", options.most_tok);
  if (!(options.eps > 0.0)) refuse("a positive eps", static_cast<long long>(options.eps));
}

}  // namespace

Quoka::Arrays Quoka::lay_out(Scratch& plan, const CallShape& shape, const QuokaOptions& options) {
  check_options(shape, options);
  const auto n_batch = static_cast<std::size_t>(shape.n_batch);
  const std::size_t n_lists = n_batch * static_cast<std::size_t>(shape.n_kv);
  const std::size_t n_scores = n_lists * static_cast<std::size_t>(stride_of(shape));
  const std::size_t n_picks = n_batch * static_cast<std::size_t>(shape.n_q) * kMostVectors;
  Arrays at;
  at.inverse_norms = plan.add<float>(n_scores);
  at.scores = plan.add<float>(n_scores);
  at.vectors = plan.add<float>(n_picks * static_cast<std::size_t>(shape.d_head));
  at.picks = plan.add<std::int32_t>(n_picks);
  at.histogram = plan.add<std::int32_t>(n_lists * kBuckets);
  at.items = plan.add<std::int32_t>(n_lists * static_cast<std::size_t>(options.budget));
  at.counts = plan.add<std::int32_t>(n_lists);
  return at;
}

std::size_t Quoka::device_bytes(const CallShape& shape, const QuokaOptions& options) {
  Scratch plan;
  lay_out(plan, shape, options);
  return plan.size();
}

Quoka::Quoka(const CallShape& shape, const QuokaOptions& options)
    : shape_(shape),
      options_(options),
      memory_(device_bytes(shape, options), "QuoKA's norms and scores") {
  Scratch plan(memory_.data());
  at_ = lay_out(plan, shape, options);
}

void Quoka::append(const void* k, const std::int32_t* n_past, int n_tok, StreamHandle stream) {
  if (n_tok < 1) refuse("at least one new key", n_tok);
  append_norms(shape_, k, n_past, n_tok, options_.eps, at_.inverse_norms, stream);
}

void Quoka::choose(const DeviceRows& rows, StreamHandle stream, Step last) {
  if (rows.n_tok < 1 || rows.n_tok > options_.most_tok)
    refuse("1 to " + std::to_string(options_.most_tok) + " queries", rows.n_tok);
  QueryChoice choice;
  choice.q = rows.q;
  choice.n_tok = rows.n_tok;
  choice.n_queries = options_.n_queries;
  choice.eps = options_.eps;
  choice.vectors = at_.vectors;
  choice.picks = at_.picks;
  choice.histogram = at_.histogram;
  choice.k = rows.k;
  choice.n_past = rows.n_past;
  choice.inverse_norms = at_.inverse_norms;
  choose_queries(shape_, choice, stream);
  if (last == Step::queries) return;

  RowScores scoring;
  scoring.rows = rows.k;
  scoring.capacity = shape_.capacity;
  scoring.dtype = shape_.dtype;
  scoring.width = shape_.d_head;
  scoring.n_batch = shape_.n_batch;
  scoring.n_kv = shape_.n_kv;
  scoring.vectors = at_.vectors;
  scoring.n_parts = shape_.group();
  scoring.n_vectors = std::min(options_.n_queries, rows.n_tok);
  scoring.n_past = rows.n_past;
  scoring.rows_are_there = true;
  scoring.factors = at_.inverse_norms;
  scoring.scores = at_.scores;
  scoring.stride = stride_of(shape_);
  scoring.histogram = at_.histogram;
  score_rows(scoring, stream);
  if (last == Step::scores) return;

  TopLists top;
  top.scores = at_.scores;
  top.stride = stride_of(shape_);
  top.n_batch = shape_.n_batch;
  top.n_owners = shape_.n_kv;
  top.histogram = at_.histogram;
  top.n_past = rows.n_past;
  top.budget = options_.budget;
  top.items = at_.items;
  top.counts = at_.counts;
  top.item_stride = options_.budget;
  make_top_lists(top, stream);
}

DeviceLists Quoka::lists() const {
  return {at_.items, at_.counts, options_.budget, shape_.n_kv, /*page_size=*/1};
}

}  // namespace kvscope::gpu
