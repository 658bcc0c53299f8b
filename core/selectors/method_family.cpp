#include "core/selectors/method_family.hpp"

namespace kvscope {

std::string_view title_of(MethodFamily family) {
  switch (family) {
    case MethodFamily::controls:
      return "controls and oracles";
    case MethodFamily::positions:
      return "by position, independent of the keys";
    case MethodFamily::keys:
      return "single keys by score";
    case MethodFamily::pages:
      return "pages, blocks and chunks of keys by score";
    case MethodFamily::patterns:
      return "patterns of prefill";
    case MethodFamily::eviction:
      return "eviction for good";
    case MethodFamily::sampling:
      return "samples with weights";
    case MethodFamily::summaries:
      return "clusters that stand for their keys";
    case MethodFamily::layers:
      return "lists shared across layers";
    case MethodFamily::budgets:
      return "how much each head or row keeps";
    case MethodFamily::guided:
      return "chosen by another model or a learned index";
  }
  return "";
}

MethodFamily usual_family(std::string_view source, const SelectorCaps& caps) {
  if (source == "control") return MethodFamily::controls;
  if (caps.permanent && !caps.is_static) return MethodFamily::eviction;
  if (caps.prefill && !caps.decode) return MethodFamily::patterns;
  if (caps.is_static) return MethodFamily::positions;
  if (caps.needs_draft) return MethodFamily::guided;
  if (caps.cross_layer) return MethodFamily::layers;
  return caps.page_size > 1 ? MethodFamily::pages : MethodFamily::keys;
}

}  // namespace kvscope
