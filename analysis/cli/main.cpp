// The program kvscope.
#include "analysis/cli/frame/program.hpp"

int main(int argc, char** argv) {
  return kvscope::cli::run_as_process({argv + (argc > 0 ? 1 : 0), argv + argc});
}
