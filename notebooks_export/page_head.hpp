// One head as an HTML page holds it: its attention map, the heaviest keys of every query, and what
// methods keep of both.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "analysis/base/pooled_rows.hpp"
#include "core/base/index.hpp"
#include "core/base/parallel.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/trace/source.hpp"

namespace kvscope {

/// Cells of `block` x `block` pairs of a query and a key; the last ones may hold fewer.
struct CellGrid {
  Index n_tokens = 0;
  Index block = 1;
  std::optional<Index> window;  // the layer's: a query sees the last keys only

  /// Rows, and columns.
  Index side() const { return (n_tokens + block - 1) / block; }
  /// Positions of a row's queries, or of a column's keys.
  TokenRange tokens(Index cell) const;
  /// Columns that some query of the row sees.
  TokenRange seen_cols(Index row) const;
  std::size_t n_seen() const;
};

/// Smaller weights are told apart from none, not from each other.
inline constexpr double kPageFloor = 1e-9;

/// A method under a budget.
struct PageMethod {
  MethodSpec method;
  std::optional<Budget> budget;  // empty for methods that take none
  /// "quest:page-size=16 at tokens=64".
  std::string words() const;
};

inline constexpr std::size_t kMostPageMethods = 8;  // of a head: a bit each

/// How the methods of a page are asked.
struct PageReplay {
  Index chunk = 128;                  // B_CP of calls in the prompt
  std::optional<Index> dense_layers;  // empty: each method's own default
};

struct PageHead {
  std::size_t trace = 0;  // among the page's
  Index layer = 0;
  Index q_head = 0;
  std::vector<PageMethod> methods;
  CellGrid grid;
  Index n_heaviest = 0;  // keys per query that the text shows; 0: the head has no text

  /// What its numbers take in the page.
  double bytes() const;
};

struct HeadNumbers {
  nlohmann::ordered_json json;  // see page/page_data.js
  std::string scripts;          // <script type="text/plain"> with encoded numbers
};

/// `id`: the head's number in the page. Throws what the analyses throw; Interrupted on a stop.
HeadNumbers head_numbers(const PageHead& head, std::size_t id, const TraceSource& trace,
                         MapPooling pooling, const PageReplay& replay, ThreadPool& pool,
                         const std::stop_token& stop);

}  // namespace kvscope
