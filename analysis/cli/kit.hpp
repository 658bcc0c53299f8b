// What the sources of most commands include: the command and its options, what it prints and
// writes, and the signals that stop it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "analysis/base/mapped.hpp"
#include "analysis/cli/command.hpp"
#include "analysis/cli/common_options.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/cli/save_text.hpp"
#include "analysis/cli/signals.hpp"
#include "analysis/cli/text_table.hpp"
#include "core/base/error.hpp"
#include "core/base/number_text.hpp"
#include "core/base/version.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

}  // namespace kvscope::cli
