// Layouts of the tables in the papers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "notebooks_export/paper_table.hpp"

namespace kvscope {

struct TablePreset {
  std::string name;     // "quoka-1"
  std::string summary;  // one line without a full stop
  TableSpec spec;
};

/// quoka-1, quoka-2, quoka-3, quest-passkey, specattn-1.
const std::vector<TablePreset>& table_presets();

/// Null if there is none of that name.
const TablePreset* find_table_preset(std::string_view name);

}  // namespace kvscope
