#include "core/selectors/cost_units.hpp"

#include <algorithm>

#include "core/selectors/candidates.hpp"

namespace kvscope {

namespace {

Index n_alive(const SelectCall& call, Index kv_head, TokenRange range) {
  if (all_alive(call, kv_head)) return range.size();
  Index n = 0;
  for (Index pos = range.begin; pos < range.end; ++pos) n += is_alive(call, kv_head, pos) ? 1 : 0;
  return n;
}

}  // namespace

double alive_keys(const SelectCall& call, TokenRange range) {
  Index n = 0;
  for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) n += n_alive(call, kv_head, range);
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
      n += n_alive(call, kv_head, keys) > 0 ? 1 : 0;
    }
  }
  return static_cast<double>(n);
}

SelectCost exact_scoring_cost(const SelectCall& call, TokenRange range, Index n_rows) {
  const auto d = static_cast<double>(call.k.dim(2));
  const double n_keys = alive_keys(call, range);
  const auto rows_per_kv_head = static_cast<double>(call.q.dim(0) / call.k.dim(0) * n_rows);
  return {.score_flops = 2.0 * rows_per_kv_head * n_keys * d,
          .score_bytes = n_keys * d * kBytesPerElement};
}

double block_pairs(const SelectCall& call, Index query_block, Index key_block) {
  const TokenRange key_blocks{0, (call.k.dim(1) + key_block - 1) / key_block};
  const Index group = call.q.dim(0) / call.k.dim(0);
  const Index n_query_blocks = group * ((call.n_tok + query_block - 1) / query_block);
  return static_cast<double>(n_query_blocks) * alive_pages(call, key_blocks, key_block);
}

}  // namespace kvscope
