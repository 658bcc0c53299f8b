#include "analysis/simulate/ask_prompt.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/base/analysis.hpp"
#include "analysis/simulate/chains.hpp"
#include "analysis/simulate/measured_cost.hpp"
#include "analysis/simulate/prefill_chunks.hpp"
#include "core/sim/draft_runner.hpp"

namespace kvscope {

namespace {

using TokenSpan = std::span<const TokenId>;

/// A stretch of tokens that goes in one way.
struct PromptPart {
  Index begin = 0;
  Index end = 0;
  bool is_sparse = false;
  bool by_token = false;
};

/// One running sequence under the method, with its draft if it needs one.
class Asking {
 public:
  Asking(const SimulationSetup& setup, const LivePair& pair, const AskOptions& options,
         Index capacity, const DensePrefix& dense, ThreadPool& pool, const std::stop_token& stop)
      : setup_(setup),
        options_(options),
        stop_(stop),
        live_(*setup.models.verifier, pair.options, capacity, pool, {setup.calibration.get()}) {
    if (pair.needs_draft) {
      draft_.emplace(*setup.models.draft, capacity, pool);
      prefill_chunks(*draft_, dense.tokens(), setup.options.chunk, stop);
    }
    dense.begin(live_, stop);
  }

  void feed(TokenSpan tokens, bool is_sparse, bool by_token) {
    live_.set_sparse(is_sparse);
    by_token ? feed_by_token(tokens) : feed_by_chunk(tokens);
  }

  /// Generates greedily, under the method or not.
  std::vector<TokenId> answer(Index n) {
    live_.set_sparse(options_.protocol.sparse_answer);
    std::vector<TokenId> tokens;
    while (true) {
      check_stop(stop_, "simulate");
      tokens.push_back(argmax(logits_.view().row(logits_.dim(0) - 1)));
      if (static_cast<Index>(tokens.size()) == n) return tokens;
      feed_by_token({&tokens.back(), 1});
    }
  }

  /// The likeliest next token after each of the last n tokens of `tokens`, all run in calls of
  /// whole chunks (the first one is the shorter), so that they share the last call.
  std::vector<TokenId> forced(TokenSpan tokens, Index n) {
    live_.set_sparse(true);
    const auto chunk = static_cast<std::size_t>(setup_.options.chunk);
    std::vector<TokenId> likeliest;
    std::size_t size = tokens.size() % chunk == 0 ? chunk : tokens.size() % chunk;
    for (std::size_t at = 0; at < tokens.size(); at += size, size = chunk) {
      check_stop(stop_, "simulate");
      const bool is_read = at + size + static_cast<std::size_t>(n) > tokens.size();
      const Tensor<float> logits =
          live_.run(Phase::prefill, tokens.subspan(at, size), is_read ? Logits::all : Logits::none);
      if (!is_read) continue;
      for (Index row = 0; row < static_cast<Index>(size); ++row) {
        if (static_cast<Index>(at) + row + n >= static_cast<Index>(tokens.size()))
          likeliest.push_back(argmax(logits.view().row(row)));
      }
    }
    return likeliest;
  }

  /// Totals since the last turn.
  std::vector<double> take_kept() {
    const auto kept = kept_values(live_.stats());
    live_.clear_stats();
    return kept;
  }

 private:
  /// Chunks of B_CP, with a look at the stop before each.
  void feed_by_chunk(TokenSpan tokens) {
    const auto chunk = static_cast<std::size_t>(setup_.options.chunk);
    for (std::size_t at = 0; at < tokens.size(); at += chunk) {
      check_stop(stop_, "simulate");
      const TokenSpan call = tokens.subspan(at, std::min(chunk, tokens.size() - at));
      if (draft_) draft_->prefill(call, setup_.options.chunk);
      logits_ = live_.run(Phase::prefill, call,
                          at + chunk >= tokens.size() ? Logits::last : Logits::none);
    }
  }

  /// One token at a time; with a draft, gamma at a time, the draft consuming the same tokens.
  void feed_by_token(TokenSpan tokens) {
    const auto step = static_cast<std::size_t>(draft_ ? setup_.options.gamma : 1);
    for (std::size_t at = 0; at < tokens.size(); at += step) {
      check_stop(stop_, "simulate");
      const TokenSpan call = tokens.subspan(at, std::min(step, tokens.size() - at));
      std::vector<Tensor<float>> rows;
      if (draft_) rows = draft_->consume(call);
      logits_ = live_.run(draft_ ? Phase::verify : Phase::decode, call, Logits::last, rows);
    }
  }

  const SimulationSetup& setup_;
  const AskOptions& options_;
  const std::stop_token& stop_;
  LiveSequence live_;
  std::optional<DraftRunner> draft_;
  Tensor<float> logits_;
};

/// What follows the dense tokens of a prompt of n tokens.
std::vector<PromptPart> parts_of(const Protocol& protocol, Index n_dense, Index n_context,
                                 Index n) {
  if (protocol.fed) return {{n_dense, n, true, true}};
  if (protocol.sparse_context && protocol.sparse_question && !protocol.unseen)
    return {{0, n, true, false}};
  std::vector<PromptPart> parts;
  if (protocol.sparse_context) parts.push_back({0, n_context, true, false});
  parts.push_back({n_context, n, protocol.sparse_question, protocol.unseen});
  return parts;
}

/// The answer stands in the prompt's last chunk and is read off there.
AskedTurn ask_inside(Asking& asking, PromptKind kind, const Prompt& prompt, Index n_dense,
                     const Tokenizer& tokenizer) {
  std::vector<std::string> answers = prompt.answers;
  if (kind == PromptKind::local) answers.resize(1);  // any of them would do: the first
  std::vector<std::size_t> begins;
  const std::vector<TokenId> expected = answer_tokens(answers, tokenizer, begins);
  std::vector<TokenId> tokens(prompt.tokens.begin() + n_dense, prompt.tokens.end());
  tokens.insert(tokens.end(), expected.begin(), expected.end() - 1);
  AskedTurn turn;
  turn.answer = asking.forced(tokens, static_cast<Index>(expected.size()));
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const bool is_right = std::equal(expected.begin() + static_cast<Index>(begins[i]),
                                     expected.begin() + static_cast<Index>(begins[i + 1]),
                                     turn.answer.begin() + static_cast<Index>(begins[i]));
    turn.score += is_right ? 1.0 / static_cast<double>(answers.size()) : 0.0;
  }
  turn.kept = asking.take_kept();
  return turn;
}

/// The prompt with another question at its end.
Prompt with_question(const Prompt& prompt, const PromptTurn& question) {
  Prompt other = prompt;
  other.more.clear();
  other.tokens.resize(static_cast<std::size_t>(prompt.n_context));
  other.tokens.insert(other.tokens.end(), question.tokens.begin(), question.tokens.end());
  other.answers = question.answers;
  return other;
}

}  // namespace

Index n_dense_tokens(const Prompt& prompt, const AskOptions& options) {
  const auto n = static_cast<Index>(prompt.tokens.size());
  if (!options.protocol.fed) return options.protocol.sparse_context ? 0 : prompt.n_context;
  const Index n_dense = n - std::min(options.n_fed, n - 1);
  return prompt.more.empty() ? n_dense : std::min(n_dense, prompt.n_context);
}

Index positions_of(const Prompt& prompt, const Tokenizer& tokenizer) {
  std::vector<std::size_t> begins;
  Index n = static_cast<Index>(prompt.tokens.size()) +
            std::max(prompt.n_answer_tokens,
                     static_cast<Index>(answer_tokens(prompt.answers, tokenizer, begins).size()));
  for (const PromptTurn& turn : prompt.more)
    n += static_cast<Index>(turn.tokens.size()) + prompt.n_answer_tokens;
  return n;
}

std::vector<TokenId> answer_tokens(const std::vector<std::string>& answers,
                                   const Tokenizer& tokenizer, std::vector<std::size_t>& begins) {
  std::vector<TokenId> tokens;
  begins.clear();
  for (const std::string& answer : answers) {
    begins.push_back(tokens.size());
    const auto ids = tokenizer.encode((begins.size() > 1 ? ", " : " ") + answer);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }
  begins.push_back(tokens.size());
  return tokens;
}

std::vector<AskedTurn> ask_prompt(const SimulationSetup& setup, const LivePair& pair,
                                  PromptKind kind, const Prompt& prompt, const AskOptions& options,
                                  const DensePrefix& dense, ThreadPool& pool,
                                  const std::stop_token& stop) {
  const Tokenizer& tokenizer = *setup.models.tokenizer;
  const Protocol& protocol = options.protocol;
  const TokenSpan tokens(prompt.tokens);
  const auto n_dense = static_cast<Index>(dense.tokens().size());
  Asking asking(setup, pair, options, positions_of(prompt, tokenizer), dense, pool, stop);
  std::vector<AskedTurn> turns;
  if (protocol.inside) {
    turns.push_back(ask_inside(asking, kind, prompt, n_dense, tokenizer));
  } else {
    for (const PromptPart& part :
         parts_of(protocol, n_dense, prompt.n_context, static_cast<Index>(tokens.size()))) {
      asking.feed(tokens.subspan(static_cast<std::size_t>(part.begin),
                                 static_cast<std::size_t>(part.end - part.begin)),
                  part.is_sparse, part.by_token);
    }
    const auto add_turn = [&](const std::vector<std::string>& answers) {
      AskedTurn turn;
      turn.answer = asking.answer(prompt.n_answer_tokens);
      turn.score = prompt.continuation.empty()
                       ? score_answer(kind, answers, tokenizer.decode(turn.answer))
                       : share_before_error(prompt.continuation, turn.answer);
      turn.kept = asking.take_kept();
      turns.push_back(std::move(turn));
    };
    add_turn(prompt.answers);
    if (!options.shared_prefix) {
      for (const PromptTurn& next : prompt.more) {
        asking.feed({&turns.back().answer.back(), 1}, protocol.sparse_answer, /*by_token=*/true);
        asking.feed(next.tokens, protocol.sparse_question, protocol.unseen || protocol.fed);
        add_turn(next.answers);
      }
      return turns;
    }
  }
  for (const PromptTurn& next : prompt.more) {
    const auto turn =
        ask_prompt(setup, pair, kind, with_question(prompt, next), options, dense, pool, stop);
    turns.push_back(turn.front());
  }
  return turns;
}

}  // namespace kvscope
