// Which keys methods keep for the queries of one head, asked by replay, as a story shows them.
#pragma once

#include <stop_token>

#include "core/attention/selection.hpp"
#include "core/base/parallel.hpp"
#include "core/base/progress.hpp"
#include "core/base/vocabulary.hpp"
#include "core/trace/source.hpp"
#include "notebooks_export/story.hpp"
#include "notebooks_export/story_cells.hpp"

namespace kvscope {

/// Who is asked where.
struct KeptQuery {
  const TraceSource& trace;
  const TraceSource* draft = nullptr;  // for methods that need it
  Index layer = 0;
  Index head = 0;
  Index chunk = 128;
  std::optional<Index> dense_layers;
};

/// One query's row under one method. Comes from several threads.
struct KeptQueryRow {
  Index pos = 0;
  std::span<const KeyPos> keys;   // ascending, visible ones
  std::span<const KeyPos> ruled;  // ascending: of them, those that are kept whatever their score
  double mass = 0.0;              // dense attention on them
};

/// Calls visit once for each of `queries` that the method answers: those of the prompt in its
/// prefill chunks (as decode steps of their own if the method knows no prefill), those behind it as
/// decode steps. Returns a sentence where it answers otherwise than that, or not at all, else "".
/// Throws what replay_layers throws.
std::string visit_kept(const KeptQuery& query, const StoryMethod& method, TokenRange queries,
                       ThreadPool& pool, const ProgressFn& progress, const std::stop_token& stop,
                       const std::function<void(const KeptQueryRow&)>& visit);

/// What a method keeps of a map's cells: counts of pairs, [rows, cols].
class KeptCells {
 public:
  explicit KeptCells(const CellGrid& grid);
  /// Safe from several threads.
  void put(const KeptQueryRow& row);

  /// Share of the cell's visible pairs that are kept; NaN where a query of the cell was not
  /// answered, or sees none of its keys.
  double share(Index row, Index col) const;
  /// Attention that is kept, mean over the queries of the row; NaN unless all were answered.
  double mass(Index row) const;
  double mean_mass() const;  // over all answered queries; NaN if none was
  double mean_keys() const;  // kept keys per answered query, of the whole context

  /// The seen cells: with one pair a cell in two bits (0 not known, 1 dropped, 2 kept; four cells a
  /// byte, the first one lowest), else a byte (0 not known, else 1 + 254 times the share); base64.
  std::string encode() const;
  /// share_code of each row's mass, base64.
  std::string encode_masses() const;
  static std::size_t encoded_bytes(const CellGrid& grid);

 private:
  CellGrid grid_;
  std::vector<std::uint16_t> kept_;  // [queries, cols] pairs
  std::vector<double> masses_;       // [queries]; NaN: not answered
  std::vector<Index> n_keys_;        // [queries]
};

}  // namespace kvscope
