#include "tests/cli/recordings.hpp"

#include <fmt/format.h>

#include <stdexcept>

#include "support/fixture.hpp"
#include "tests/cli/run_program.hpp"

namespace kvscope::test {
namespace {

std::string made(const char* file, int n_tokens, int n_decode, std::vector<std::string> options) {
  return testing::fixture_file(
             fmt::format("{}-{}/{}", n_tokens, n_decode, file),
             [&](const std::filesystem::path& out) {
               const RunResult run = kvscope_run(with({"record", out.string()}, options));
               if (run.code != 0) throw std::runtime_error(run.err);
             })
      .string();
}

}  // namespace

std::string recording(int n_tokens, int n_decode) {
  return made("trace.h5", n_tokens, n_decode,
              {"--max-tokens", std::to_string(n_tokens), "--decode", std::to_string(n_decode)});
}

std::string draft_recording(int n_tokens, int n_decode) {
  return made("draft.h5", n_tokens, n_decode,
              {"--model", "draft", "--tokens", recording(n_tokens, n_decode)});
}

}  // namespace kvscope::test
