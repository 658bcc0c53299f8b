// What a store says of the items of a study, whole: tables, numbers of heads, remarks and failures.
#pragma once

#include <string>
#include <vector>

#include "analysis/runs/store.hpp"
#include "analysis/study/study_items.hpp"
#include "analysis/study/study_table.hpp"

namespace kvscope {

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

}  // namespace kvscope
