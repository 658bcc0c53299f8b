#include "core/attention/list_plan.hpp"

#include <algorithm>

namespace kvscope {

bool is_kept_by_rule(const ListPlan& plan, Index key, Index query, Index begin) {
  if (plan.by == ListPlan::By::slashes) return key < plan.n_sink || query - key < plan.n_latest;
  return plan.by == ListPlan::By::channels && key >= begin - plan.n_latest && plan.n_latest > 0;
}

Index pages_kept(ListPlan::Pages rule, Index budget, Index page_size, Index n_keys, Index n_pages) {
  // Whole and partial pages together may exceed budget / page.
  if (budget >= n_keys) return n_pages;
  switch (rule) {
    case ListPlan::Pages::eval:
      return std::min(std::max<Index>(3, budget / page_size), n_pages);
    case ListPlan::Pages::kernel:
      return std::min(std::max<Index>(1, budget / page_size), n_pages);
    case ListPlan::Pages::frontier:
      return budget / page_size;
    case ListPlan::Pages::hub:
      return std::max<Index>(1, (budget + page_size - 1) / page_size);
  }
  return 0;
}

Index kept_before(const ListPlan& plan, Index pos_begin) {
  if (!plan.takes_pages()) return std::min(pos_begin, plan.budget);
  const Index n_pages = pos_begin / plan.page_size;
  const Index n_keys = n_pages * plan.page_size;
  return plan.page_size * pages_kept(plan.pages, plan.budget, plan.page_size, n_keys, n_pages) +
         pos_begin - n_keys;
}

}  // namespace kvscope
