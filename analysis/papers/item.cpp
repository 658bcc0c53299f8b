#include "analysis/papers/item.hpp"

namespace kvscope::papers {

std::string paper_name(Paper paper) {
  switch (paper) {
    case Paper::quoka:
      return "QuoKA";
    case Paper::quest:
      return "Quest";
    case Paper::specattn:
      break;
  }
  return "SpecAttn";
}

std::string verdict_word(Verdict verdict) {
  switch (verdict) {
    case Verdict::holds:
      return "holds";
    case Verdict::in_form:
      return "holds in form";
    case Verdict::does_not_hold:
      return "does not hold";
    case Verdict::not_decided:
      return "not decided";
    case Verdict::cannot_test:
      return "cannot be tested";
    case Verdict::not_run:
      break;
  }
  return "not run";
}

std::span<const Item> items() {
  static const std::vector<Item> all = [] {
    std::vector<Item> list;
    for (auto make : {quoka_items, quest_items, specattn_items, error_items}) {
      for (Item& item : make()) list.push_back(std::move(item));
    }
    return list;
  }();
  return all;
}

}  // namespace kvscope::papers
