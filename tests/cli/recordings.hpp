// Recordings of the embedded pair, made by the program, which several cases read and none changes
// (tests/support/fixture.hpp).
#pragma once

#include <filesystem>
#include <string>

namespace kvscope::test {

/// "kvscope record trace.h5 --max-tokens N --decode M": the path of that file.
std::string recording(int n_tokens, int n_decode = 0);

/// The draft on the tokens of that recording: the path of a draft.h5.
std::string draft_recording(int n_tokens, int n_decode = 0);

}  // namespace kvscope::test
