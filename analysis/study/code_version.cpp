#include "analysis/study/study_items.hpp"

namespace kvscope {

std::string_view code_version() {
  return KVSCOPE_CODE_VERSION;
}

}  // namespace kvscope
