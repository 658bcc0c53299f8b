// One table over all results of a study: rows as analysis/base/json_rows.hpp has them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/runs/store.hpp"
#include "analysis/study/study_items.hpp"
#include "core/base/json.hpp"

namespace kvscope {

/// The rows of a command's result that answer an item: those of its method and budget. Columns that
/// the item says itself, empty cells and rows of single heads are left out, and of `doubt` what
/// compares methods.
/// `rows`: "rows" of the command's JSON.
Json rows_of_item(const Json& rows, const StudyItem& item);
/// {"mass_mean": [...], "recall10": [...], "output_error_rel": [...]} of the item's rows of heads
/// in layers without a window, in their order, to five digits (null in layers that the method
/// leaves dense there: they are no comparison); null where a command has no such rows.
Json heads_of_item(const Json& rows, const StudyItem& item);

/// A metric's mean difference over heads with its 95 % interval, paired.
struct HeadDifference {
  std::string_view column;  // "mass_difference"
  double mean = 0.0;
  double low = 0.0;  // NaN of fewer than two heads
  double high = 0.0;
};

/// `heads` less `against`, both as heads_of_item() wrote them. Empty where one of them is null, or
/// they are not of as many heads.
std::vector<HeadDifference> head_differences(const Json& heads, const Json& against);

/// What becomes of an item's rows.
enum class StudyRows {
  means,        // rows of layers become one: of an analysis its totals, else means over the layers
                // without a window (mass_min: the least), without intervals
  named_means,  // the same; the method also under the names of results: selector, budget_kind,
                // budget
  all,          // every row as it is, with these names
};

/// What a store says of the items of a study, whole: tables, numbers of heads, remarks, failures.
class StudyAnswers {
 public:
  /// Both must outlive it. Of the store's file, what is asked for is read then, an item's newest
  /// line once: every member throws IoError or FormatError as Store::line does.
  StudyAnswers(const StudyPlan& plan, const Store& store);

  /// Lines of the items of a task (empty: of every task); those that failed, or that the task left
  /// out, have a remark.
  Json table(const std::string& task, StudyRows how) const;
  /// The same as named means without remarks, and with columns NAME_difference,
  /// NAME_difference_low and NAME_difference_high to the method `against` at the same budget in the
  /// same model, text and protocol, where both have numbers of heads.
  Json with_differences(const std::string& task, const std::string& against) const;
  /// Items that nobody has computed yet, of a task or of every one.
  std::size_t n_unknown(const std::string& task) const;

 private:
  std::string line_of(const StudyItem& item) const;
  std::vector<const StudyItem*> items(const std::string& task) const;

  const StudyPlan& plan_;
  const Store& store_;
};

/// Without rows of layers with a window, and of layers that one method leaves dense at every budget
/// in the same model, text and protocol: means over the others compare. `table`: StudyRows::all.
Json common_layers(const Json& table);

std::string study_markdown(const Json& table);
/// Every row with every column; what is empty is null.
Json study_json(const Json& table);

}  // namespace kvscope
