#include "analysis/cli/frame/command.hpp"

namespace kvscope::cli {

std::vector<std::pair<std::string, std::string>> command_groups() {
  return {{"analyze", "analyses of recorded traces"},
          {"simulate", "the model with a selector inside its attention"},
          {"study", "a question over models, texts, methods and budgets as one file"},
          {"bench", "measurements of speed"}};
}

}  // namespace kvscope::cli
