#include "analysis/papers/item.hpp"

namespace kvscope::papers {

std::string paper_name(Paper paper) {
  return std::array{"QuoKA", "Quest", "SpecAttn"}[static_cast<std::size_t>(paper)];
}

std::string verdict_word(Verdict verdict) {
  return std::array{"holds",       "holds in form",    "does not hold",
                    "not decided", "cannot be tested", "not run"}[static_cast<std::size_t>(
      verdict)];
}

std::span<const Item> items() {
  static const std::vector<Item> all = [] {
    constexpr std::pair<Paper, ItemList*> kLists[] = {{Paper::quoka, quoka_geometry_items},
                                                      {Paper::quoka, quoka_accuracy_items},
                                                      {Paper::quoka, quoka_cost_items},
                                                      {Paper::quest, quest_motivation_items},
                                                      {Paper::quest, quest_quality_items},
                                                      {Paper::quest, quest_speed_items},
                                                      {Paper::specattn, specattn_method_items},
                                                      {Paper::specattn, specattn_quality_items},
                                                      {Paper::specattn, specattn_speed_items},
                                                      {Paper::quoka, quoka_errors},
                                                      {Paper::quest, quest_errors},
                                                      {Paper::specattn, specattn_errors}};
    std::vector<Item> list;
    for (const auto& [paper, make] : kLists) {
      for (Item& item : make()) {
        item.paper = paper;
        list.push_back(std::move(item));
      }
    }
    return list;
  }();
  return all;
}

}  // namespace kvscope::papers
