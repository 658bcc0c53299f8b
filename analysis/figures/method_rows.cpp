#include "analysis/figures/method_rows.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/base/mapped.hpp"
#include "analysis/figures/spec.hpp"
#include "analysis/plot/rich_text.hpp"

namespace kvscope::figures {

std::map<double, std::size_t> MethodRows::of_batch(double batch) const {
  std::map<double, std::size_t> found;
  for (const auto& [place, row] : rows) {
    if (place.first == batch) found[place.second] = row;
  }
  return found;
}

std::vector<MethodRows> method_rows(const Table& table, const FigureOptions& options,
                                    BudgetInLabel budget) {
  const Wanted wanted(options.selector);
  const auto budgets = table.numbers("budget");
  std::set<std::string> cards;
  std::map<std::string, std::set<double>> budgets_of;
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    cards.insert(table.text("hardware").at(r));
    if (std::isfinite(budgets[r])) budgets_of[table.text("selector").at(r)].insert(budgets[r]);
  }
  std::vector<MethodRows> methods;
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    const std::string& selector = table.text("selector").at(r);
    if (!wanted.has(selector)) continue;
    std::string more;
    if (budget == BudgetInLabel::always ? std::isfinite(budgets[r])
                                        : budgets_of[selector].size() > 1)
      more += ", " + budget_label(table, r);
    if (cards.size() > 1) more += ", " + plot::verbatim(table.text("hardware").at(r));
    const std::string label = method_label(selector) + more;
    auto found = std::ranges::find(methods, label, &MethodRows::label);
    if (found == methods.end()) found = methods.insert(found, {label, selector + ":" + more, {}});
    found->rows[{table.numbers("batch")[r], table.numbers("context")[r]}] = r;
  }
  if (methods.empty()) fail_empty(table.name(), "no row of these methods");
  return methods;
}

MethodTones tones_of(const std::vector<MethodRows>& methods) {
  const auto looks = mapped<std::string>(methods, &MethodRows::look);
  return MethodTones(looks);
}

}  // namespace kvscope::figures
