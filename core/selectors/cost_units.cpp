#include "core/selectors/cost_units.hpp"

#include <algorithm>

#include "core/selectors/candidates.hpp"

namespace kvscope {

double alive_keys(const SelectCall& call, TokenRange range) {
  Index n = 0;
  for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head)
    n += count_candidates(call, kv_head, range);
  return static_cast<double>(n);
}

double alive_pages(const SelectCall& call, TokenRange pages, Index page_size) {
  Index n = 0;
  for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) {
    if (all_alive(call, kv_head)) {
      n += pages.size();
      continue;
    }
    for (Index page = pages.begin; page < pages.end; ++page) {
      const TokenRange keys{page * page_size, std::min((page + 1) * page_size, call.k.dim(1))};
      n += count_candidates(call, kv_head, keys) > 0 ? 1 : 0;
    }
  }
  return static_cast<double>(n);
}

double queries_per_kv_head(const SelectCall& call) {
  return static_cast<double>(call.q.dim(0) / call.k.dim(0) * call.n_tok);
}

SelectCost products_cost(double n_vectors, double n_rows, double width) {
  return {.score_flops = 2.0 * n_vectors * n_rows * width,
          .score_bytes = n_rows * width * kBytesPerElement};
}

SelectCost own_products_cost(const SelectCall& call, double n) {
  const Index n_own = (call.q.dim(0) + call.k.dim(0)) * call.n_tok;
  return flops_cost(2.0 * static_cast<double>(n_own * call.k.dim(2)) * n);
}

SelectCost channels_cost(const SelectCall& call, double n_keys, double flops, double elements) {
  const double n_channels = n_keys * static_cast<double>(call.k.dim(2));
  return {.score_flops = flops * n_channels,
          .score_bytes = elements * n_channels * kBytesPerElement};
}

SelectCost weights_cost(double n_weights, double n_held) {
  return {.score_flops = n_weights,
          .score_bytes = n_weights * kBytesPerProb,
          .metadata_bytes = n_held * kBytesPerProb};
}

SelectCost codes_cost(const SelectCall& call, double bytes_per_key) {
  return {.score_bytes = alive_keys(call, past_range(call)) * bytes_per_key,
          .metadata_bytes = alive_keys(call, {0, call.k.dim(1)}) * bytes_per_key};
}

SelectCost page_scores_cost(const SelectCall& call, TokenRange scored, Index page_size,
                            Index n_summed, double bytes) {
  const auto d = static_cast<double>(call.k.dim(2));
  const TokenRange all{0, (call.k.dim(1) + page_size - 1) / page_size};
  const double n_scored = alive_pages(call, scored, page_size);  // of all KV heads
  const auto n_q = static_cast<double>(call.q.dim(0));
  return {.score_flops = n_summed > 0
                             ? 2.0 * n_q * static_cast<double>(n_summed) * d + 4.0 * n_scored * d
                             : 4.0 * n_q / static_cast<double>(call.k.dim(0)) * n_scored * d,
          .score_bytes = 2.0 * n_scored * d * bytes,
          .metadata_bytes = 2.0 * alive_pages(call, all, page_size) * d * bytes};
}

SelectCost exact_scoring_cost(const SelectCall& call, TokenRange range, Index n_rows) {
  return products_cost(static_cast<double>(call.q.dim(0) / call.k.dim(0) * n_rows),
                       alive_keys(call, range), static_cast<double>(call.k.dim(2)));
}

double block_pairs(const SelectCall& call, Index query_block, Index key_block) {
  const TokenRange key_blocks{0, (call.k.dim(1) + key_block - 1) / key_block};
  const Index group = call.q.dim(0) / call.k.dim(0);
  const Index n_query_blocks = group * ((call.n_tok + query_block - 1) / query_block);
  return static_cast<double>(n_query_blocks) * alive_pages(call, key_blocks, key_block);
}

SelectCost block_scores_cost(const SelectCall& call, Index query_block, Index key_block,
                             double flops) {
  const auto d = static_cast<double>(call.q.dim(2));
  const double n_keys = alive_keys(call, {0, call.k.dim(1)});  // of all KV heads
  const auto n_queries = static_cast<double>(call.q.dim(0) * call.n_tok);
  return {.score_flops = flops * (n_queries + n_keys) * d +
                         2.0 * block_pairs(call, query_block, key_block) * d,
          .score_bytes = n_keys * d * kBytesPerElement};
}

}  // namespace kvscope
