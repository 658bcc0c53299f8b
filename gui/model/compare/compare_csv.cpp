#include "gui/model/compare/compare_figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kvscope::gui {

namespace {

TokenId token_at(const Document& document, Index pos) {
  return document.source().tokens()[static_cast<std::size_t>(pos)];
}

bool holds(const KeyPart& part, Index pos) {
  return std::ranges::binary_search(part.keys, static_cast<KeyPos>(pos));
}

}  // namespace

std::string compare_maps_csv(const KeptComparison& c) {
  std::string csv = "query_begin,query_end,key_begin,key_end,share_a,share_b,difference\n";
  std::size_t cell = 0;
  for (const Index query : c.block_begins) {
    for (const Index key : c.page_begins) {
      const std::size_t at = cell++;
      if (std::isnan(c.share_a[at])) continue;
      fmt::format_to(std::back_inserter(csv), "{},{},{},{},{},{},{}\n", query,
                     query + c.cells.query_block, key, key + c.cells.page_size, c.share_a[at],
                     c.share_b[at], c.difference[at]);
    }
  }
  return csv;
}

std::string compare_keys_csv(const QueryKeys& query, const Document& document) {
  std::string csv = "query,key,token_id,attention,kept\n";
  for (Index pos = query.row.visible.begin; pos < query.row.visible.end; ++pos) {
    const char* kept = holds(query.both, pos)     ? "both"
                       : holds(query.only_a, pos) ? "a"
                       : holds(query.only_b, pos) ? "b"
                                                  : "";
    fmt::format_to(std::back_inserter(csv), "{},{},{},{},{}\n", query.row.query, pos,
                   token_at(document, pos), query.row.prob(pos), kept);
  }
  return csv;
}

std::string compare_rows_csv(const RowDifference& rows, const Document& document) {
  std::string csv = "query,key,token_id,attention_a,attention_b,difference\n";
  for (Index pos = rows.visible.begin; pos < rows.visible.end; ++pos) {
    fmt::format_to(std::back_inserter(csv), "{},{},{},{},{},{}\n", rows.a.query, pos,
                   token_at(document, pos), rows.a.prob(pos), rows.b.prob(pos),
                   rows.difference[static_cast<std::size_t>(pos - rows.visible.begin)]);
  }
  return csv;
}

}  // namespace kvscope::gui
