#include "analysis/study/study_answers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "analysis/study/study_heads.hpp"
#include "analysis/study/study_state.hpp"
#include "core/base/csv_text.hpp"

namespace kvscope {

using Json = nlohmann::ordered_json;

struct StudyAnswers::Answer {
  std::string table, remark;
  Json heads;
};

StudyAnswers::StudyAnswers(const StudyPlan& plan, const StudyStore& store)
    : plan_(plan), store_(store) {
  for (const StudyItem& item : plan.items) answers_[item.key];
  read_study_store(store.file(), [&](const Json& line) {
    const auto found = answers_.find(line.at("key").get<std::string>());
    if (found == answers_.end()) return;
    found->second = {line.value("table", std::string()), line.value("remark", std::string()),
                     line.value("heads", Json())};
  });
}

StudyAnswers::~StudyAnswers() = default;

const StudyAnswers::Answer& StudyAnswers::of(const StudyItem& item) const {
  return answers_.at(item.key);
}

std::vector<const StudyItem*> StudyAnswers::items(const std::string& task) const {
  std::vector<const StudyItem*> items;
  for (const StudyItem& item : plan_.items) {
    if (!plan_.jobs[item.job].is_recording && (task.empty() || item.task == task))
      items.push_back(&item);
  }
  return items;
}

StudyTable StudyAnswers::table(const std::string& task, StudyRows rows) const {
  StudyTable table;
  for (const StudyItem* item : items(task)) {
    const Answer& answer = of(*item);
    const std::string failure = failure_of(plan_, store_, *item);
    if (!failure.empty())
      add_remark(table, *item, "failed: " + failure);
    else if (!answer.table.empty())
      add_item(table, *item, answer.table, rows);
    else if (store_.knows(item->key))
      add_remark(table, *item, answer.remark);
  }
  return table;
}

StudyTable StudyAnswers::with_differences(const std::string& task,
                                          const std::string& against) const {
  const auto place_of = [](const StudyItem& item) {
    return std::tuple(item.task, item.model, item.text, item.protocol, item.budget);
  };
  std::map<decltype(place_of(plan_.items[0])), const Json*> references;
  for (const StudyItem* item : items(task)) {
    if (item->method == against) references[place_of(*item)] = &of(*item).heads;
  }
  StudyTable table;
  for (const StudyItem* item : items(task)) {
    const Answer& answer = of(*item);
    if (answer.table.empty() || !failure_of(plan_, store_, *item).empty()) continue;
    add_item(table, *item, answer.table, StudyRows::named_means);
    const auto reference = references.find(place_of(*item));
    if (reference == references.end()) continue;
    for (const HeadDifference& one : head_differences(answer.heads, *reference->second)) {
      const std::string column(one.column);
      put_cell(table, column, csv_number(one.mean));
      put_cell(table, column + "_low", csv_number(one.low));
      put_cell(table, column + "_high", csv_number(one.high));
    }
  }
  return table;
}

std::size_t StudyAnswers::n_unknown(const std::string& task) const {
  return static_cast<std::size_t>(std::ranges::count_if(items(task), [&](const StudyItem* item) {
    return failure_of(plan_, store_, *item).empty() && of(*item).table.empty() &&
           !store_.knows(item->key);
  }));
}

}  // namespace kvscope
