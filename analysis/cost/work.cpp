#include "analysis/cost/work.hpp"

#include <algorithm>
#include <cmath>

#include "core/sim/attended.hpp"
#include "core/sim/kept_keys.hpp"

namespace kvscope {

namespace {

/// Runs of adjacent positions that are marked.
double count_runs(std::span<const std::uint8_t> marks) {
  double n = 0.0;
  for (std::size_t i = 0; i < marks.size(); ++i)
    n += marks[i] != 0 && (i == 0 || marks[i - 1] == 0) ? 1.0 : 0.0;
  return n;
}

/// Runs in the union of a KV head's lists. Keys behind a query that see nothing of it (a list
/// serves several rows) count as count_kept_keys counts them: by the last row of the list.
double runs_of_kv_head(const Selection& selection, Index group, Index kv_head, TokenRange tokens,
                       std::vector<std::uint8_t>& marks) {
  std::ranges::fill(marks, std::uint8_t{0});
  const Index n_lists = selection.owner == ListOwner::q_head ? group : 1;
  for (Index r = 0; r < n_lists; ++r) {
    const Index owner = owner_of(selection.owner, kv_head * group + r, group);
    for (Index row = 0; row < tokens.size(); row += selection.rows_per_list) {
      const Index last = std::min(row + selection.rows_per_list, tokens.size()) - 1;
      const TokenRange seen{0, tokens.begin + last + 1};
      for (const KeyPos key : inside(selection.list(owner, row).keys, seen))
        marks[static_cast<std::size_t>(key)] = 1;
    }
  }
  return count_runs(marks);
}

}  // namespace

std::array<double*, 14> numbers_of(LayerWork& work) {
  CallShape& shape = work.shape;
  AttendWork& attend = work.attend;
  return {&shape.n_q,        &shape.n_kv,        &shape.d_head, &shape.n_tok,   &shape.n_ctx,
          &attend.pairs,     &attend.keys,       &attend.runs,  &attend.rows,   &work.score_flops,
          &work.score_bytes, &work.append_bytes, &work.ranked,  &work.summaries};
}

LayerWork dense_work(const CallShape& shape, std::optional<Index> window) {
  LayerWork work{.shape = shape, .is_dense = true};
  const double first = shape.n_ctx - shape.n_tok;  // keys before the call
  double pairs = shape.n_tok * first + shape.n_tok * (shape.n_tok + 1.0) / 2.0;
  double keys = shape.n_ctx;
  if (window) {
    const auto w = static_cast<double>(*window);
    pairs = 0.0;
    for (double row = 0.0; row < shape.n_tok; row += 1.0) pairs += std::min(first + row + 1.0, w);
    keys = std::min(shape.n_ctx, w + shape.n_tok - 1.0);
  }
  work.attend = {pairs * shape.n_q, keys * shape.n_kv, shape.n_kv, shape.n_tok * shape.group()};
  return work;
}

LayerWork measured_work(const Selection& selection, const SelectCost& cost, Index n_q, Index n_kv,
                        Index d_head, TokenRange tokens, Index page_size) {
  const CallShape shape{static_cast<double>(n_q), static_cast<double>(n_kv),
                        static_cast<double>(d_head), static_cast<double>(tokens.size()),
                        static_cast<double>(tokens.end)};
  LayerWork work = dense_work(shape);
  work.score_flops = cost.score_flops;
  work.score_bytes = cost.score_bytes;
  work.append_bytes = cost.metadata_bytes * shape.n_tok / shape.n_ctx;
  work.is_dense = selection.is_dense && cost.score_flops == 0.0 && cost.score_bytes == 0.0;
  if (selection.is_dense) return work;

  work.attend = {};
  const Index group = n_q / n_kv;
  std::vector<std::uint8_t> marks(static_cast<std::size_t>(tokens.end), 0);
  for (Index kv_head = 0; kv_head < n_kv; ++kv_head) {
    const KeptKeys kept = count_kept_keys(selection, group, kv_head, tokens, std::nullopt);
    for (const double n : kept.attended) work.attend.pairs += n;
    work.attend.keys += kept.n_union;
    work.attend.runs += runs_of_kv_head(selection, group, kv_head, tokens, marks);
    work.summaries += static_cast<double>(selection.summaries.count(kv_head));
  }
  const bool is_shared = selection.owner != ListOwner::q_head;
  const Index rows = std::min(selection.rows_per_list, tokens.size());
  work.attend.rows = static_cast<double>(rows * (is_shared ? group : 1));
  if (cost.score_flops > 0.0) {
    const double units =
        std::ceil(shape.n_ctx / static_cast<double>(std::max<Index>(page_size, 1)));
    work.ranked = units * static_cast<double>(selection.n_lists());
  }
  return work;
}

}  // namespace kvscope
