#include "core/attention/list_plan.hpp"

#include <algorithm>

namespace kvscope {

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

}  // namespace kvscope
