// What a method costs at every token in the running model: how much less likely it makes the token
// that comes next in the recorded text.
#pragma once

#include <filesystem>

#include "core/model/transformer.hpp"
#include "gui/model/tokens/token_losses.hpp"

namespace kvscope::gui {

/// Where the model that a trace was recorded with lies. Throws ConfigError with a sentence if it is
/// not here, or is another one by now.
std::filesystem::path model_of_trace(const TraceInfo& info);

/// Negative log-likelihood of the next token under the method less that of the dense model, nats.
/// The prompt goes in by chunks, what was decoded token by token; a method answers in those phases
/// it is defined for. The last token has no next one. Throws what model_of_trace, Transformer::load
/// and LiveSequence throw, ConfigError for methods that need a draft or a calibration.
TokenLosses next_token_losses(const TraceSource& trace, const LossRequest& request,
                              JobContext& job);

/// The same for a model that is loaded.
TokenLosses next_token_losses(const Transformer& model, const TraceSource& trace,
                              const LossRequest& request, JobContext& job);

}  // namespace kvscope::gui
