// What is selected, the same in every panel: layer, head, query, key, methods and budgets; and its
// history, which can be undone.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/fields.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/trace/info.hpp"

namespace kvscope::gui {

/// The linked selection. Indices are true ones of the model; positions are absolute.
struct Selection {
  Index trace = 0;  // of Session::documents()
  Index layer = 0;
  Index q_head = 0;
  Index query = 0;           // position of the query that is looked at
  std::optional<Index> key;  // position of a key, never beyond the query
  MethodSpec selector = "quoka";
  MethodSpec other = "quest";  // what it is compared with
  bool operator==(const Selection&) const = default;
};

/// The sliders: what methods and analyses are told.
struct Parameters {
  Index budget = option(budget, "budget", 256, "past keys kept per KV head", in(1, 1 << 20));
  Index n_queries =
      option(n_queries, "n-queries", 16, "N_Q: queries that QuoKA keeps of a chunk", in(1, 4096));
  Index chunk =
      option(chunk, "chunk", 128, "B_CP: prompt tokens per prefill chunk", in(2, 1 << 16));
  Index page_size = option(page_size, "page-size", 16, "keys per page", in(1, 1024));
  double nucleus =
      option(nucleus, "nucleus", 0.95, "p: attention mass that top-p methods keep", in(0.01, 1.0));
  Index dense_layers =
      option(dense_layers, "dense-layers", 0, "leading layers that stay dense", in(0, 256));
  bool operator==(const Parameters&) const = default;
};

/// The part of the state that undo goes through.
struct Snapshot {
  Selection selection;
  Parameters parameters;
  bool operator==(const Snapshot&) const = default;
};

/// Undo and redo. Changes of one origin in quick succession (a drag, a held key) are one step.
class History {
 public:
  using Clock = std::chrono::steady_clock;
  /// Notes that the state was `before` and will change because of `origin`.
  void note(const Snapshot& before, std::string_view origin, Clock::time_point now);
  bool can_undo() const { return !past_.empty(); }
  bool can_redo() const { return !future_.empty(); }
  /// What to go back to; `now_at` is kept for redo. Call only if can_undo().
  Snapshot undo(const Snapshot& now_at);
  Snapshot redo(const Snapshot& now_at);

 private:
  std::vector<Snapshot> past_;
  std::vector<Snapshot> future_;
  std::string origin_;
  Clock::time_point last_{};
};

/// The field with the range that a slider has for this trace: no budget, chunk or page beyond its
/// tokens, no more dense layers than it has.
Field within(const Field& field, const TraceInfo& info);

/// The recorded index nearest to the wanted one, which is left alone without any.
Index nearest(const std::vector<Index>& recorded, Index wanted);

/// The selection with every index inside `info`: recorded layer and head, query and key that exist.
Selection clamped(Selection selection, const TraceInfo& info);

/// How much of a trace something shows: the selected head, all heads of its layer, or all layers.
enum class Extent { head, layer, trace };

}  // namespace kvscope::gui
