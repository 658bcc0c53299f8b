// JSON whose objects keep the order in which they were filled, as reports and files here have it.
#pragma once

#include <nlohmann/json.hpp>

namespace kvscope {

using Json = nlohmann::ordered_json;

}  // namespace kvscope
