#include "analysis/cli/runs/selection_options.hpp"

#include "analysis/cli/frame/list_options.hpp"
#include "core/base/json.hpp"

namespace kvscope::cli {

void SelectionOptions::declare(OptionSet& options) {
  options.add("layers", "LIST", "layers to include, as 0,4-7 [all]", layers);
  options.add("heads", "LIST", "query heads to include, with their KV heads, as 0,4-7 [all]",
              heads);
}

TraceSelection SelectionOptions::selection() const {
  TraceSelection selection;
  if (layers) selection.layers = index_list_of(*layers, "layers");
  if (heads) selection.q_heads = index_list_of(*heads, "heads");
  return selection;
}

Json SelectionOptions::with(const Json& fields) const {
  const TraceSelection chosen = selection();
  Json json;
  json["layers"] = layers ? Json(chosen.layers) : Json(nullptr);
  json["heads"] = heads ? Json(chosen.q_heads) : Json(nullptr);
  json.update(fields);
  return json;
}

}  // namespace kvscope::cli
