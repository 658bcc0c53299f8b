// Quest (arXiv 2406.10774): its figures and tables, from the slides and the printed paper.
#include "analysis/papers/item.hpp"

namespace kvscope::papers {

namespace {

Value quest_accuracy(const std::string& key, const std::string& label, const std::string& where) {
  return {key, label, "passkey", "accuracy", where, Unit::percent, Spread::wilson};
}

Value quest_recall10(const std::string& key, const std::string& label, const std::string& name) {
  const std::string where = "selector=" + name + ";match=keys={at};window=0;q_head=";
  return {key, label, "match-decode", "recall10", where, Unit::percent, Spread::recorded};
}

Value quest_increase(const std::string& key, const std::string& label,
                     const std::string& selector) {
  return {key,          label,        "perplexity-empty", "perplexity", "selector=" + selector,
          Unit::factor, Spread::none, Derive::ratio,      "full"};
}

/// Items of {method} by the rules of the published programs, with the keys that either keeps of a
/// budget of 64 (three pages and half of the current one on average, or four), against pages that
/// are drawn at random.
std::vector<Item> by_page_rules(std::vector<Item> items) {
  for (Item& item : items) {
    item.readings = {{"by the kernels' page rule", "quest", "56"},
                     {"by the evaluator's page rule", "quest-paper", "63"}};
    item.control = ":choice=random";
    item.control_label = "pages drawn at random";
  }
  return items;
}

}  // namespace

std::vector<Item> quest_motivation_items() {
  return {
      {.id = "quest-cache-slows",
       .place = "Motivation",
       .title = "A long key-value cache slows decoding",
       .claim =
           "Decoding slows down as the sequence grows, because attention loads the whole cache.",
       .words = "the inference speed decreases significantly as the sequence length grows ... This "
                "slowdown is primarily caused by loading a large KV cache during attention",
       .published = "Words; in the paper 21.6 ms a token at 8k and 36.8 ms at 32k (FP16).",
       .values = {{"slower", "time of decode steps after 8000 tokens over that after 1000",
                   "decode", "step_seconds", "method=dense;length=8000", Unit::factor,
                   Spread::recorded, Derive::ratio, "short"},
                  {"short", "seconds of a step after 1000 tokens, median", "decode", "step_seconds",
                   "method=dense;length=1000", Unit::number, Spread::recorded},
                  {"long", "seconds of a step after 8000 tokens, median", "decode", "step_seconds",
                   "method=dense;length=8000", Unit::number, Spread::recorded}},
       .checks = {{Role::form, "slower", Op::above, "1"},
                  {Role::size, "slower", Op::at_least, "1.7", 0.0,
                   "36.8 over 21.6 ms is the paper's factor from 8k to 32k"}},
       .note = "Measured on this machine's cores, dense decoding."},
      {.id = "quest-sparsity",
       .place = "The Sparsity in Attention",
       .title = "A small portion of the tokens holds the attention",
       .claim = "A small portion of tokens, the critical ones, gathers most of the attention.",
       .words =
           "a small portion of tokens in the KV cache, called critical tokens, can accumulate "
           "sufficient attention scores, capturing the most important inter-token relationships",
       .published = "A picture after H2O; in the paper, \"over 90 % sparsity\" in all but the "
                    "first two layers.",
       .values = {{"keys", "share of the visible keys that hold 90 % of a row's attention",
                   "coverage", "totals.nucleus_0.9", "", Unit::percent, Spread::none, Derive::ratio,
                   "visible"},
                  {"count", "keys that hold 90 % of a row's attention, mean", "coverage",
                   "totals.nucleus_0.9", "", Unit::tokens, Spread::rows},
                  {"half", "keys that hold half of it, mean", "coverage", "totals.nucleus_0.5", "",
                   Unit::tokens, Spread::rows},
                  {"visible", "keys a row sees, mean", "sweep-prefill", "kept",
                   "selector=full;q_head=", Unit::tokens}},
       .checks = {{Role::form, "keys", Op::at_most, "0.5"},
                  {Role::size, "keys", Op::at_most, "0.1", 0.0,
                   "this small model attends more broadly than a 7B one"}},
       .pictures = {{"figure nucleus-size {coverage}"}}},
      {.id = "quest-query-dynamic",
       .place = "The Limits of Previous Methods",
       .title = "\"A is B. C is D. A is\": criticality depends on the query",
       .claim = "The token B is critical for the last \"is\" and for no query before it.",
       .words =
           "The criticality of the tokens is dynamic and highly dependent on the query vector Q "
           "... 'B' is not critical for any previous query and has very low attention scores",
       .published = "An example with a drawn attention map; no number.",
       .values = {},
       .checks = {},
       .pictures = {{"figure attention-map {abcd-map}"}},
       .note = "The same words, recorded and drawn (layer 0, head 0); compare the last row with "
               "the rows above.",
       .never = "The claim is one drawn example without a number, so there is nothing to compare "
                "with; the same words are recorded and drawn."},
  };
}

std::vector<Item> quest_quality_items() {
  return by_page_rules({
      {.id = "quest-passkey",
       .place = "Pass-key tables (10k and 100k tokens)",
       .title = "Pass keys by budget",
       .claim = "Quest finds nearly all pass keys with 64 tokens (1 % of the context); H2O, TOVA "
                "and StreamingLLM find next to none.",
       .words = "Quest can achieve nearly perfect accuracy with a KV cache of 64 and 1024 tokens, "
                "which is about 1% of the total sequence length",
       .published = "LongChat-7b, 10k tokens, budgets 32 / 64 / 128 / 256 / 512: Quest 65 / 99 / "
                    "99 / 99 / 100 %; TOVA 0 / 1 / 1 / 3 / 8 %; H2O 0 / 1 / 1 / 1 / 3 %; "
                    "StreamingLLM 1 / 1 / 1 / 3 / 5 %.",
       .values = {quest_accuracy("quest", "Quest, 64 tokens and more",
                                 "selector={method};budget>=64"),
                  quest_accuracy("full", "full attention", "selector=full"),
                  quest_accuracy("h2o", "H2O", "selector=h2o;budget>=64"),
                  quest_accuracy("tova", "TOVA", "selector=tova;budget>=64"),
                  quest_accuracy("window", "StreamingLLM", "selector=streamingllm;budget>=64")},
       .checks = {{Role::needs, "full", Op::at_least, "0.75", 0.0,
                   "this model does not find the keys with full attention"},
                  {Role::form, "quest", Op::above, "h2o", 0.0, "", 0.3},
                  {Role::form, "quest", Op::above, "tova", 0.0, "", 0.3},
                  {Role::form, "quest", Op::above, "window", 0.0, "", 0.3},
                  {Role::size, "quest", Op::at_least, "0.99", 0.05}},
       .pictures = {{"table quest-passkey {passkey}"}},
       .note = "The published kernels keep the current page; the evaluator that made the paper's "
               "tables lets it compete. Asked are pass keys, or "
               "magic numbers in the same prose if the dense model finds these more often in other "
               "prompts (run asked)."},
      {.id = "quest-pg19",
       .place = "PG19 figure",
       .title = "Perplexity over a long text",
       .claim = "Quest closely matches the perplexity of the full cache; other methods lie above.",
       .words = "Quest can closely match the performance of the full cache model",
       .published = "LongChat-7b, first book of PG19, 32k tokens, budget 4096; a picture.",
       .values = {quest_increase("quest", "Quest's perplexity over full attention's", "{method}"),
                  quest_increase("h2o", "H2O's", "h2o"),
                  quest_increase("tova", "TOVA's", "tova"),
                  quest_increase("window", "StreamingLLM's", "streamingllm"),
                  {"full", "perplexity with full attention", "perplexity-empty", "perplexity",
                   "selector=full"}},
       .checks = {{Role::needs, "full", Op::at_most, "200", 0.0,
                   "this model does not know the language of the text"},
                  {Role::form, "quest", Op::below, "window"},
                  {Role::form, "quest", Op::below, "h2o"},
                  {Role::form, "quest", Op::below, "tova"},
                  {Role::size, "quest", Op::at_most, "1.01", 0.0,
                   "\"closely\" has no number; one percent is asked for here"}},
       .pictures = {{"figure perplexity {perplexity-empty}"}},
       .note = "From an empty cache, as Quest's script does. Windows of one book."},
      {.id = "quest-longbench",
       .place = "LongBench figures",
       .title = "LongBench by budget",
       .claim = "With a budget of 2k tokens Quest is comparable to the full cache on six tasks.",
       .words = "Quest with a budget of 2k tokens can achieve comparable performance as the model "
                "with full KV cache, while other baselines still exhibit a notable gap from full "
                "cache performance even with a larger budget",
       .published = "LongChat-7b-v1.5-32k; curves. (The slides say 2k, the paper 1k.)",
       .never = "LongBench's documents and questions do not come with this program (kvscope "
                "simulate retrieval --examples asks them, where they are)."},
      {.id = "quest-recall",
       .place = "Figure 4 (recall)",
       .title = "Recall of the ten heaviest keys",
       .claim = "Quest keeps nearly all of the ten heaviest keys; H2O about half of them.",
       .published = "Read from the plot, budgets 64 / 256 / 1024: Quest about .96 / .99 / 1.00, "
                    "H2O about .45 / .47 / .50.",
       .values = {quest_recall10("quest", "Quest's recall of the ten heaviest", "{method}"),
                  quest_recall10("h2o", "H2O's with as many keys", "h2o"),
                  quest_recall10("tova", "TOVA's", "tova"),
                  quest_recall10("window", "StreamingLLM's", "streamingllm")},
       .checks = {{Role::form, "quest", Op::above, "h2o"},
                  {Role::form, "quest", Op::above, "tova"},
                  {Role::form, "quest", Op::above, "window"},
                  {Role::size, "quest", Op::at_least, "0.96", 0.02}},
       .pictures = {{"figure top10-recall {sweep-decode}"}},
       .note =
           "Decode steps of a recording, layers 2 and up; the first two are dense, as "
           "published. At a budget of 64 tokens Quest keeps 56 keys by one rule and up to 64 by "
           "the other, so that each is compared with methods that keep as many."},
  });
}

std::vector<Item> quest_speed_items() {
  const auto speed = [](const std::string& key, const std::string& label,
                        const std::string& where) {
    return Value{key,          label,           "select", "speedup", "selector=quest;" + where,
                 Unit::factor, Spread::recorded};
  };
  return by_page_rules({
      {.id = "quest-attention-time",
       .place = "Attention time breakdown",
       .title = "Self-attention speedup",
       .claim = "Quest speeds up self-attention by 7.03x at 32k tokens with budget 2048.",
       .words =
           "Quest speeds up self-attention by 7.03x at sequence length 32k with token budget 2048",
       .published = "7.03x on an RTX 4090 (the paper's figure for budget 4096: 1.69 / 2.92 / 4.86x "
                    "at 8k / 16k / 32k).",
       .values = {speed("long", "dense attention over Quest's choice and attention, 32k",
                        "tokens=32768"),
                  speed("middle", "the same at 16k", "tokens=16384"),
                  speed("short", "the same at 8k", "tokens=8192")},
       .checks =
           {{Role::form, "long", Op::above, "1"},
            {Role::form, "long", Op::above, "short"},
            {Role::size, "long", Op::at_least, "7.03", 0.0,
             "here three query heads share a KV head and each has its own list, so more than an "
             "eighth of the cache is read"}},
       .pictures = {{"table --rows selector --columns tokens --value speedup,select_over_dense "
                     "{select}"}},
       .note = "One thread of a CPU, made-up numbers in the shape of Llama-3.2-3B (24 query and 8 "
               "KV heads)."},
      {.id = "quest-end-to-end",
       .place = "End-to-end latency",
       .title = "Decode latency, FP16 and 4-bit weights",
       .claim = "Quest makes decoding 1.74x (FP16) and 2.23x (4-bit weights) as fast at 32k.",
       .words = "Quest speedup end-to-end inference by 2.23x with sequence length 30K, token "
                "budget 2048, 4-bit weight quantization",
       .published = "36.8 to 21.2 ms and 29.6 to 13.3 ms a token, Llama-2-7b, RTX 6000 Ada.",
       .never = "It needs a GPU, 4-bit weights and a model in which the cache outweighs the "
                "weights; this program measures the attention alone (previous item)."},
      {.id = "quest-efficiency",
       .place = "Efficiency comparison",
       .title = "Cost at equal quality",
       .claim = "At the same quality Quest is up to 4.54 times as fast as the baselines, which "
                "need nearly the full cache.",
       .words = "Baselines need nearly full cache to achieve lossless performance on LongBench "
                "benchmarks ... Quest outperforms the baseline by up to 4.54x with the same "
                "lossless accuracy",
       .published = "3.82x on GovReport and 4.54x on TriviaQA against TOVA.",
       .values =
           {{"gain", "bytes of the full cache over bytes of Quest at 64 tokens", "sweep-decode",
             "bytes", "selector=full;q_head=;layer>=2", Unit::factor, Spread::none, Derive::ratio,
             "bytes"},
            {"bytes", "bytes a call of Quest at 64 tokens", "sweep-decode", "bytes",
             "selector={method};budget=64;q_head=;dense=0"},
            quest_accuracy("full", "facts found with full attention", "selector=full"),
            quest_accuracy("quest", "facts found by Quest at 64 tokens",
                           "selector={method};budget=64"),
            quest_accuracy("tova", "facts found by TOVA at 256 tokens", "selector=tova;budget=256"),
            quest_accuracy("h2o", "facts found by H2O at 256 tokens", "selector=h2o;budget=256")},
       .checks = {{Role::needs, "full", Op::at_least, "0.75", 0.0,
                   "this model does not find the keys with full attention"},
                  {Role::form, "quest", Op::above, "tova", 0.0, "", 0.3},
                  {Role::form, "quest", Op::above, "h2o", 0.0, "", 0.3},
                  {Role::size, "gain", Op::at_least, "4.54"}},
       .pictures = {{"figure bytes {sweep-decode}"}},
       .note = "Bytes instead of time, facts instead of LongBench.",
       .only_form = "Bytes of the full cache over Quest's stand for seconds of TOVA's over "
                    "Quest's, so the size is not judged."},
  });
}

}  // namespace kvscope::papers
