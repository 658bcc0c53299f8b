#include "gui/model/tokens/next_token_losses.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/base/analysis.hpp"
#include "analysis/simulate/perplexity.hpp"
#include "core/base/data_dir.hpp"
#include "core/base/error.hpp"
#include "core/base/shell_word.hpp"
#include "core/model/model_hash.hpp"
#include "core/model/model_stores.hpp"
#include "core/sim/live.hpp"

namespace kvscope::gui {

namespace {

namespace fs = std::filesystem;

/// What --model says on a command line; empty if it is not there.
std::string model_word(const std::string& command_line) {
  const std::vector<std::string> words = words_of_line(command_line);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--model" && i + 1 < words.size()) return words[i + 1];
    if (words[i].starts_with("--model=")) return words[i].substr(8);
  }
  return "";
}

/// Where the model may lie: as the command line named it, or one of the embedded pair.
std::vector<fs::path> places_of(const std::string& word) {
  if (word.empty()) return {embedded_verifier(), embedded_draft()};
  if (word == "verifier") return {embedded_verifier()};
  if (word == "draft") return {embedded_draft()};
  return {find_model(word)};
}

bool is_model_of(const fs::path& dir, const TraceInfo& info) {
  return info.model_hash.empty() ? dir.filename() == info.model_name
                                 : model_hash(dir) == info.model_hash;
}

/// Negative log-likelihood of each next token under one method.
std::vector<double> next_token_surprise(const Transformer& model, const TraceSource& trace,
                                        const LiveOptions& options, bool sparse_prompt,
                                        bool sparse_steps, Index chunk, JobContext& job,
                                        Index part) {
  const std::span<const TokenId> tokens = trace.tokens();
  const auto n = static_cast<Index>(tokens.size());
  const Index n_prompt = std::min(trace.info().n_prompt, n);
  LiveSequence live(model, options, n, job.pool);
  std::vector<double> surprise;
  for (Index begin = 0; begin < n;) {
    check_stop(job.stop, "next token");
    if (job.progress) job.progress({"next token", part * n + begin, 2 * n, "tokens"});
    const bool is_prompt = begin < n_prompt;
    const Index end = is_prompt ? std::min(begin + chunk, n_prompt) : begin + 1;
    const auto call =
        tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    live.set_sparse(is_prompt ? sparse_prompt : sparse_steps);
    const Tensor<float> logits =
        live.run(is_prompt ? Phase::prefill : Phase::decode, call, Logits::all);
    for (Index pos = begin; pos < std::min(end, n - 1); ++pos) {
      surprise.push_back(negative_log_likelihood(logits.view().row(pos - begin),
                                                 tokens[static_cast<std::size_t>(pos + 1)]));
    }
    begin = end;
  }
  return surprise;
}

}  // namespace

fs::path model_of_trace(const TraceInfo& info) {
  std::string why = "no model that is here has its weights";
  try {
    for (const fs::path& dir : places_of(model_word(info.command_line))) {
      if (is_model_of(dir, info)) return dir;
    }
  } catch (const Error& error) {
    why = error.what();
  }
  throw ConfigError(
      "The loss of the next token needs the trace's model, {}, which was not found: {}. Shade by "
      "mass or output error instead, or put the model where it was.",
      info.model_name, why);
}

TokenLosses next_token_losses(const TraceSource& trace, const LossRequest& request,
                              JobContext& job) {
  const Transformer model = Transformer::load(model_of_trace(trace.info()));
  return next_token_losses(model, trace, request, job);
}

TokenLosses next_token_losses(const Transformer& model, const TraceSource& trace,
                              const LossRequest& request, JobContext& job) {
  const SelectorCaps& caps = request.spec.caps();
  if (caps.needs_draft || caps.needs_calibration) {
    throw ConfigError(
        "The loss of the next token is measured without a draft and a calibration, which {} needs.",
        request.spec);
  }
  LiveOptions options;
  const auto surprise = [&](Index part) {
    return next_token_surprise(model, trace, options, caps.is_defined(Phase::prefill),
                               caps.is_defined(Phase::decode), request.chunk, job, part);
  };
  const std::vector<double> dense = surprise(0);
  options.selector = request.spec;
  options.budget = request.budget;
  options.dense_layers = request.dense_layers;
  const std::vector<double> sparse = surprise(1);
  TokenLosses losses{.request = request};
  for (std::size_t pos = 0; pos < dense.size(); ++pos)
    losses.add(static_cast<Index>(pos), sparse[pos] - dense[pos]);
  return losses;
}

}  // namespace kvscope::gui
