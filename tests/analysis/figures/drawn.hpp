// Results for tests of figures, figures drawn from them, and their marks.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "analysis/base/read_table.hpp"
#include "analysis/figures/figure_kind.hpp"
#include "analysis/figures/selection.hpp"
#include "core/trace/result.hpp"
#include "tests/analysis/figures/lint.hpp"
#include "tests/support/figure_bands.hpp"

namespace kvscope::testing {

inline void begin_result(MemoryResult& result, const std::string& kind) {
  result.begin({.kind = kind});
}

template <class T>
void put(MemoryResult& result, const std::string& name, const Shape& shape,
         const std::vector<std::string>& dims, const std::vector<T>& values) {
  result.declare({name, result_type_of<T>(), shape, dims, "1", name});
  result.write<T>(name, 0, values);
}

/// A table as a result.
inline MemoryResult result_of(const std::string& csv, const std::string& kind = "table") {
  MemoryResult result;
  table_to_result(table_from_csv(csv, "t.csv"), {.kind = kind}, result);
  return result;
}

/// A figure without faults (lint.hpp).
inline plot::Figure drawn(const MemoryResult& result, const std::string& name,
                          const FigureOptions& options = {}) {
  plot::Figure figure = make_figure(find_figure_kind(name), {{&result}, options});
  for (const std::string& fault : faults_of(figure)) FAIL_CHECK(name << ": " << fault);
  return figure;
}

/// The line of a method, whatever its budget.
inline const plot::Line& line_named(const plot::Panel& panel, const std::string& selector) {
  const std::string label = figures::method_label(selector);
  for (const plot::Mark& mark : panel.marks) {
    const auto* line = std::get_if<plot::Line>(&mark);
    if (line != nullptr && line->label.starts_with(label)) return *line;
  }
  FAIL("no line " << label);
  return std::get<plot::Line>(panel.marks[0]);
}

template <class M>
std::vector<M> marks_of(const plot::Panel& panel) {
  std::vector<M> marks;
  for (const plot::Mark& mark : panel.marks) {
    if (const auto* found = std::get_if<M>(&mark)) marks.push_back(*found);
  }
  return marks;
}

template <class M>
const M& mark_of(const plot::Panel& panel, std::size_t nth = 0) {
  for (const plot::Mark& mark : panel.marks) {
    const auto* found = std::get_if<M>(&mark);
    if (found != nullptr && nth-- == 0) return *found;
  }
  FAIL("no such mark");
  return std::get<M>(panel.marks[0]);
}

}  // namespace kvscope::testing
