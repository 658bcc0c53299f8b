// kvscope analyze heads: which heads do what, and what they lose under sparse methods.
#include <fmt/format.h>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/inspect/analyze_one.hpp"
#include "analysis/kinds/heads.hpp"
#include "core/base/json.hpp"

namespace kvscope::cli {
namespace {

AnalysisCard heads_card() {
  AnalysisCard card;
  card.kind = "heads";
  card.summary = "which heads do what: distance, sink, retrieval, loss, small maps";
  card.about =
      "Measures every query head on exact rows: mean attention distance, entropy, the "
      "share of the first tokens (sink) and of the nearest keys (local), and a retrieval "
      "score: the weight on the needle's positions (--needle), else on the tokens that "
      "followed an earlier occurrence of the current token, as induction heads do, with "
      "the share that a uniform row would give them; rows without such a token are left "
      "out of its mean. A replay measures what each head loses under sparse methods at "
      "one budget. --out also holds a small map of every head; kvscope figure heads draws "
      "the atlas. Rows are means over the heads of a layer; --json has every head.";
  card.columns = {{"distance", "distance"},   {"entropy", "entropy"},
                  {"sink_share", "sink"},     {"local_share", "local"},
                  {"retrieval", "retrieval"}, {"retrieval_chance", "by chance"},
                  {"retrieval_max", "best"},  {"best_head", "its head"}};
  card.headline =
      "{heads} heads look {distance:3} tokens back on average; {sink_share:%} of the "
      "attention lies on the first tokens, {local_share:%} nearby, {retrieval:%} on "
      "what is looked for ({retrieval_chance:%} by chance)";
  return card;
}

class AnalyzeHeads final : public AnalyzeOne<HeadsOptions> {
 public:
  AnalyzeHeads() : AnalyzeOne(analyze_heads, heads_card()) {}

 private:
  std::string more_text(const Json& summary) const override {
    std::string text;
    if (!summary["methods"].empty()) {
      text = "\n" + filled_table(summary["methods"], {{"method", "{pair}"},
                                                      {"attention lost", "{lost_mass:3}"},
                                                      {"worst layer", "{worst_layer:3}"},
                                                      {"head", "{worst_head:3}"},
                                                      {"it loses", "{worst_lost_mass:3}"}});
    }
    for (const Json& sentence : summary["skipped"])
      text += fmt::format("left out: {}\n", sentence.get<std::string>());
    return text;
  }
};

}  // namespace

KVSCOPE_COMMAND(209, AnalyzeHeads)

}  // namespace kvscope::cli
