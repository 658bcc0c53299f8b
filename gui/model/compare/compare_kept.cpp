// Compiled alone: grid_of and its kind have other meanings in neighbours.
#include "gui/model/compare/compare_kept.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/base/analysis.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/kinds/query_page_map.hpp"
#include "core/base/error.hpp"

namespace kvscope::gui {

namespace {

constexpr Index kResamples = 1000;
constexpr std::size_t kRowsPerStopCheck = 256;

struct RowPair {
  const KeptRow* a;
  const KeptRow* b;
};

/// Rows of the same position; both lists ascend.
std::vector<RowPair> common_rows(const KeptRows& a, const KeptRows& b) {
  std::vector<RowPair> pairs;
  auto right = b.rows.begin();
  for (const KeptRow& left : a.rows) {
    while (right != b.rows.end() && right->pos < left.pos) ++right;
    if (right == b.rows.end()) break;
    if (right->pos == left.pos) pairs.push_back({&left, &*right});
  }
  return pairs;
}

/// What is averaged over the queries of one call.
struct CallMeans {
  Mean mass_a, mass_b, difference, kept_a, kept_b, jaccard;
};

void fill_maps(KeptComparison& out, const std::vector<RowPair>& rows, std::optional<Index> window,
               const JobContext& job) {
  std::vector<Index> positions;
  for (const RowPair& row : rows) positions.push_back(row.a->pos);
  const MapGrid grid(positions, /*n_heads=*/1, out.cells.query_block, out.cells.page_size);
  QueryPageMap map_a(grid);
  QueryPageMap map_b(grid);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i % kRowsPerStopCheck == 0) check_stop(job.stop, "the comparison");
    map_a.count_kept(rows[i].a->pos, rows[i].a->keys);
    map_b.count_kept(rows[i].b->pos, rows[i].b->keys);
  }
  const std::vector<Index> visible = grid.visible_counts(window);
  out.block_begins = grid.block_begins();
  out.page_begins = grid.page_begins();
  out.share_a = map_a.kept_share(visible);
  out.share_b = map_b.kept_share(visible);
  out.difference.resize(out.share_a.size());
  std::transform(out.share_a.begin(), out.share_a.end(), out.share_b.begin(),
                 out.difference.begin(), std::minus<>());
}

void fill_numbers(KeptComparison& out, const std::vector<RowPair>& rows, Phase phase, Index chunk) {
  std::map<Index, CallMeans> calls;
  for (const RowPair& row : rows) {
    CallMeans& call = calls[phase == Phase::prefill ? row.a->pos / chunk : row.a->pos];
    call.mass_a.add(row.a->mass);
    call.mass_b.add(row.b->mass);
    call.difference.add(row.a->mass - row.b->mass);
    call.kept_a.add(static_cast<double>(row.a->keys.size()));
    call.kept_b.add(static_cast<double>(row.b->keys.size()));
    call.jaccard.add(jaccard(row.a->keys, row.b->keys));
  }
  CallMeans all;
  std::vector<double> differences;
  for (const auto& [call, means] : calls) {
    all.mass_a.add(means.mass_a.value());
    all.mass_b.add(means.mass_b.value());
    all.kept_a.add(means.kept_a.value());
    all.kept_b.add(means.kept_b.value());
    all.jaccard.add(means.jaccard.value());
    differences.push_back(means.difference.value());
  }
  out.mass_a = all.mass_a.value();
  out.mass_b = all.mass_b.value();
  out.kept_a = all.kept_a.value();
  out.kept_b = all.kept_b.value();
  out.jaccard = all.jaccard.value();
  out.n_queries = static_cast<Index>(rows.size());
  out.n_calls = static_cast<Index>(calls.size());
  if (calls.size() >= 2) out.interval = bootstrap_mean(differences, kResamples, {0});
}

}  // namespace

MapCells map_cells_for(Index n_tokens, Index n_decoded, Phase phase, Index chunk, Index page_size) {
  const auto enough = [](Index n, Index size, Index most) {
    const Index n_cells = (n + size - 1) / size;
    return size * std::max<Index>(1, (n_cells + most - 1) / most);
  };
  const bool is_prefill = phase == Phase::prefill;
  return {enough(is_prefill ? n_tokens : std::max<Index>(1, n_decoded), is_prefill ? chunk : 1,
                 kMostMapBlocks),
          enough(n_tokens, page_size, kMostMapPages)};
}

std::size_t KeptComparison::bytes() const {
  return sizeof *this + (block_begins.size() + page_begins.size()) * sizeof(Index) +
         (share_a.size() + share_b.size() + difference.size()) * sizeof(float);
}

std::optional<std::size_t> KeptComparison::cell_of(Index query, Index key) const {
  if (block_begins.empty() || page_begins.empty() || query < block_begins.front() || key < 0) {
    return std::nullopt;
  }
  const Index block = (query - block_begins.front()) / cells.query_block;
  const Index page = (key - page_begins.front()) / cells.page_size;
  if (block >= n_blocks() || page >= n_pages()) return std::nullopt;
  return static_cast<std::size_t>(block * n_pages() + page);
}

KeptComparison compare_kept(const KeptRows& a, const KeptRows& b, std::optional<Index> window,
                            Phase phase, Index chunk, MapCells cells, const JobContext& job) {
  const std::vector<RowPair> rows = common_rows(a, b);
  if (rows.empty()) {
    throw ConfigError(
        "the two sides have no measured query in common: choose traces of the same tokens, and a "
        "layer with full attention in both");
  }
  KeptComparison out{.cells = cells, .dense_a = a.is_dense, .dense_b = b.is_dense};
  fill_maps(out, rows, window, job);
  fill_numbers(out, rows, phase, chunk);
  return out;
}

}  // namespace kvscope::gui
