// An explanation of answers (kvscope explain) as the window shows it, and the command that
// puts keys back.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "analysis/figures/result_view.hpp"
#include "analysis/kinds/put_back.hpp"
#include "gui/model/jobs/jobs.hpp"

namespace kvscope::gui {

/// One layer, head or key that was tried.
struct BlamedKeys {
  PutBack what;
  std::string text;        // of a key
  double recovered = 0.0;  // share of the loss that comes back; NaN where nothing was lost
  std::string says;        // the likeliest token then
};

/// One next token, as texts; `mended` is empty where nothing was put back.
struct AnswerToken {
  std::string dense;
  std::string sparse;
  std::string mended;
  double dense_surprise = 0.0;  // of the dense model's token, nats
  double sparse_surprise = 0.0;
  double mended_surprise = 0.0;
};

struct ExplainedPrompt {
  std::string name;
  std::string sentence;   // what explain says of it; empty where nothing was put back
  std::size_t token = 0;  // the explained one, from 0
  std::vector<AnswerToken> tokens;
  std::vector<BlamedKeys> layers, heads, keys;  // the one that mends most first
};

inline constexpr const char* kAnswerKind = "explain-answer";

/// The prompts of a result of kind "explain-answer". Throws FormatError for another summary.
std::vector<ExplainedPrompt> explained_prompts(const ResultView& result);

/// What kvscope is asked so that the result's prompt (from 0) is answered with these keys back: the
/// words after its name. Throws FormatError for a result without its command line.
std::vector<std::string> put_back_words(const ResultView& result, std::size_t prompt,
                                        const std::vector<PutBack>& back);

/// An answer with keys put back.
struct PutBackAnswer {
  std::vector<AnswerToken> tokens;
  std::string dense;  // what each says, fed its own tokens
  std::string sparse;
  std::string mended;
  std::size_t bytes() const { return sizeof *this + tokens.size() * sizeof(AnswerToken); }
};

/// What the command printed. Throws FormatError.
PutBackAnswer put_back_answer(const std::string& json);

/// Runs `program` with the words; its progress is the job's. Throws ConfigError with what it says
/// where it fails, Interrupted on a stop.
PutBackAnswer run_put_back(const std::string& program, std::vector<std::string> words,
                           JobContext& job);

}  // namespace kvscope::gui
