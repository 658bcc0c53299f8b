// JSON whose objects keep the order in which they were filled, as reports and files here have it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

namespace kvscope {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& x) {
  return x ? Json(*x) : Json(nullptr);
}

}  // namespace kvscope
