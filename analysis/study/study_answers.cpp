#include "analysis/study/study_answers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "analysis/base/statistics.hpp"
#include "analysis/study/study_state.hpp"
#include "core/base/json.hpp"
#include "core/base/json_members.hpp"
#include "core/base/json_reader.hpp"

namespace kvscope {

namespace {

/// A member of an item's line; null if there is none.
Json member_of(const std::string& line, std::string_view name, const StudyItem& item) {
  const std::string_view text = json_member(line, name, item.what);
  return text.empty() ? Json() : parse_ordered_json(text, item.what);
}

}  // namespace

StudyAnswers::StudyAnswers(const StudyPlan& plan, const Store& store)
    : plan_(plan), store_(store) {}

std::string StudyAnswers::line_of(const StudyItem& item) const {
  return store_.knows(item.key) ? store_.line(item.key) : "";
}

std::vector<const StudyItem*> StudyAnswers::items(const std::string& task) const {
  std::vector<const StudyItem*> items;
  for (const StudyItem& item : plan_.items) {
    if (!plan_.jobs[item.job].is_recording && (task.empty() || item.task == task))
      items.push_back(&item);
  }
  return items;
}

Json StudyAnswers::table(const std::string& task, StudyRows how) const {
  Json table = Json::array();
  for (const StudyItem* item : items(task)) {
    const std::string failure = failure_of(plan_, store_, *item);
    if (!failure.empty()) {
      add_remark(table, *item, "failed: " + failure);
      continue;
    }
    const std::string line = line_of(*item);
    if (line.empty()) continue;
    const Json rows = member_of(line, "rows", *item);
    const Json remark = member_of(line, "remark", *item);
    if (rows.empty())
      add_remark(table, *item, remark.is_string() ? remark.get<std::string>() : "");
    else
      add_item(table, *item, rows, how);
  }
  return table;
}

Json StudyAnswers::with_differences(const std::string& task, const std::string& against) const {
  const auto place_of = [](const StudyItem& item) {
    return std::tuple(item.task, item.model, item.text, item.protocol, item.budget);
  };
  std::map<decltype(place_of(plan_.items[0])), Json> references;
  for (const StudyItem* item : items(task)) {
    if (item->method != against) continue;
    if (const std::string line = line_of(*item); !line.empty())
      references[place_of(*item)] = member_of(line, "heads", *item);
  }
  Json table = Json::array();
  for (const StudyItem* item : items(task)) {
    const std::string line = line_of(*item);
    if (line.empty()) continue;
    const Json rows = member_of(line, "rows", *item);
    if (rows.empty()) continue;
    add_item(table, *item, rows, StudyRows::named_means);
    const auto reference = references.find(place_of(*item));
    if (reference == references.end()) continue;
    const Json heads = member_of(line, "heads", *item);
    for (const HeadDifference& one : head_differences(heads, reference->second)) {
      const std::string column(one.column);
      table.back()[column] = one.mean;
      table.back()[column + "_low"] = json_number(one.low);
      table.back()[column + "_high"] = json_number(one.high);
    }
  }
  return table;
}

std::size_t StudyAnswers::n_unknown(const std::string& task) const {
  return static_cast<std::size_t>(std::ranges::count_if(items(task), [&](const StudyItem* item) {
    return failure_of(plan_, store_, *item).empty() && !store_.knows(item->key);
  }));
}

}  // namespace kvscope
