// kvscope simulate retrieval: facts hidden in long prompts, found or not; chains that go on.
#include "analysis/base/statistics.hpp"
#include "analysis/simulate/retrieval.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "analysis/base/mapped.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/list_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/signals.hpp"
#include "analysis/cli/frame/text_table.hpp"
#include "analysis/cli/models/chat_prompt.hpp"
#include "analysis/cli/runs/simulate_base.hpp"
#include "analysis/simulate/chains.hpp"
#include "analysis/simulate/intervals.hpp"
#include "analysis/simulate/wording.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {
namespace {

/// The lengths of a table in its order, each once.
std::vector<double> lengths_of(const Json& rows) {
  std::vector<double> lengths;
  for (const Json& row : rows) {
    const double length = number_at(row, "length");
    if (std::ranges::find(lengths, length) == lengths.end()) lengths.push_back(length);
  }
  return lengths;
}

/// What heads a row of the printed table: kind, protocol, turn and method.
struct RowHead {
  std::string kind, protocol, turn, method;
  bool operator==(const RowHead&) const = default;
};

RowHead head_of(const Json& row) {
  const double turn = number_at(row, "turn");
  return {text_at(row, "kind"), text_at(row, "protocol"),
          std::isnan(turn) ? "" : number_text(turn, 9), text_at(row, "method")};
}

/// "80 % [49, 94]": the share over all rows, and Wilson's interval of it (of one row: its own).
std::string share_text(double share, double prompts, double low, double high) {
  if (std::isnan(low)) {  // of several rows
    const Interval interval = wilson_interval(share * prompts, prompts);
    low = interval.low;
    high = interval.high;
  }
  return fmt::format("{} [{:.0f}, {:.0f}]", percent_text(share), 100.0 * low, 100.0 * high);
}

/// Rows methods (by kind and protocol, where there are several), columns lengths: accuracy with its
/// 95 % interval, then KV reduction of the longest.
std::string by_length(const Json& rows) {
  const auto lengths = lengths_of(rows);
  const double longest = lengths.empty() ? kNan : std::ranges::max(lengths);
  const auto heads = mapped<RowHead>(rows, head_of);
  const bool by_turn = std::ranges::any_of(
      heads, [&](const RowHead& head) { return head.turn != heads.front().turn; });
  std::vector<std::string> header = {"kind", "protocol"};
  if (by_turn) header.emplace_back("turn");
  header.emplace_back("method");
  for (double length : lengths) header.push_back(number_text(length, 9));
  const std::string at_longest =
      lengths.size() > 1 ? " at " + number_text(longest, 9) : std::string();
  header.insert(header.end(), {"prompts", "KV reduction" + at_longest, "dense solves it"});
  TextTable text(header);
  for (std::size_t first = 0; first < rows.size(); ++first) {
    const RowHead& head = heads[first];
    if (&*std::ranges::find(heads, head) != &head) continue;
    std::vector<std::string> cells = {head.kind, head.protocol};
    if (by_turn) cells.push_back(head.turn);
    cells.push_back(head.method);
    std::string solved;
    Mean reduction;  // of the longest
    double n_least = std::numeric_limits<double>::infinity();
    double n_most = 0.0;
    for (double length : lengths) {
      double sum = 0.0;
      double n = 0.0;
      int n_rows = 0;
      double low = std::nan("");
      double high = std::nan("");
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const Json& row = rows[r];
        if (!(heads[r] == head) || number_at(row, "length") != length) continue;
        const double prompts = number_at(row, "prompts");
        sum += prompts * number_at(row, "accuracy");
        n += prompts;
        low = ++n_rows == 1 ? number_at(row, "accuracy_low") : std::nan("");
        high = number_at(row, "accuracy_high");
        if (length == longest) reduction.add(number_at(row, "kv_reduction"));
        solved +=
            text_at(row, "dense_solves") == "no" && !solved.ends_with(number_text(length, 9))
                ? fmt::format("{}not at {}", solved.empty() ? "" : ", ", number_text(length, 9))
                : "";
      }
      cells.push_back(share_text(sum / n, n, low, high));
      n_least = std::min(n_least, n);
      n_most = std::max(n_most, n);
    }
    cells.push_back(n_least == n_most ? number_text(n_most, 9)
                                      : fmt::format("{} to {}", n_least, n_most));
    cells.push_back(percent_text(reduction.value()));
    cells.push_back(solved.empty() ? text_at(rows[first], "dense_solves") : solved);
    text.add_row(std::move(cells));
  }
  return text.text();
}

/// The named protocols in a line.
std::string protocol_help() {
  std::vector<std::string> names;
  for (const ProtocolEntry& entry : protocol_entries())
    names.push_back(fmt::format("{}{}{} ({})", entry.protocol.name,
                                entry.paper.empty() ? "" : " or ", entry.paper, entry.meaning));
  return fmt::format(
      "what runs under the method: {}; papers stands for all of them; any other is "
      "CONTEXT/QUESTION/ANSWER of dense and sparse, +unseen (the question comes "
      "after the context's last call) or +inside",
      fmt::join(names, ", "));
}

class SimulateRetrieval final : public SimulateCommand {
 public:
  CommandCard card() const override {
    return {
        "simulate retrieval",
        "facts in long prompts and long chains, found under a method",
        "Prompts of --kinds at --lengths and --depths, asked under each method and budget; "
        "--protocol says which of context, question and answer run under it (QuoKA's: all; "
        "Quest's: decode). \"full\" always takes part: what it cannot do is marked, since a drop "
        "there says nothing.\n\nKinds are a pass key, magic numbers, tasks of RULER, InfiniteBench "
        "and The Sparse Frontier in words that the embedded models know, chains of --steps tokens "
        "of which every next one is known (accuracy is the share before the first error), or the "
        "examples of a file of JSON lines as on the hub. The embedded verifier was trained for "
        "pass keys and magic numbers only. The grid depth x length is in the .json and .h5 "
        "results.",
        {{"kvscope simulate retrieval --selector quoka,streamingllm --budget ratio=0.25 --out "
          "needle.h5",
          "a pass key under chunked prefill, lengths 1k to 8k, ten depths: the paper's figure"},
         {"kvscope simulate retrieval --protocol quest --selector quest,streamingllm --budget "
          "64,128,256,512",
          "Quest's pass keys: a dense prefill, the prompt's last tokens and the answer one by one"},
         {"kvscope simulate retrieval --kinds multi_key --facts 4 --turns 3 --selector quoka "
          "--budget 256 --lengths 2048 --show-prompts 1",
          "three questions over one cache, the first prompt printed"},
         {"kvscope simulate retrieval --kinds ruler --protocol papers --selector quoka --budget "
          "128 --lengths 2048 --until-interval 0.1",
          "RULER's eleven tasks under each paper's protocol, as many prompts as intervals of ten "
          "points take"},
         {"kvscope simulate retrieval --kinds copy --protocol answer --lengths 512 --steps 8192 "
          "--selector quest --budget 256",
          "eight thousand steps of copying"},
         {"kvscope simulate retrieval --examples longbench.jsonl --lengths 8192 --selector snapkv "
          "--budget 1024",
          "examples of a file; longer ones lose their middle"}}};
  }

 protected:
  void declare_task(OptionSet& options) final {
    const auto& names = EnumNames<PromptKind>::value;
    options.add("kinds", "LIST",
                fmt::format("of {}; or ruler, infinitebench, story, chain for a family",
                            fmt::join(names.begin(), names.end() - 1, ", ")),
                kinds_);
    options
        .add("examples", "FILE",
             "ask the examples of a file of JSON lines instead: context, question, answer_prefix, "
             "answer, max_new_tokens",
             examples_)
        .kind = ValueKind::file;
    options.add("lengths", "LIST", "prompt lengths in tokens", lengths_);
    options.add("depths", "N", "depths of the fact, equally spaced; 1 is in the middle",
                task_.n_depths);
    options.add("trials", "N", "prompts per length and depth", task_.trials);
    options.add("until-interval", "X",
                "add prompts until every interval reaches at most X to either side (0.05: five "
                "points), instead of counting them",
                task_.until_interval);
    options.add("max-trials", "N", "with --until-interval: prompts per length and depth at most",
                task_.max_trials);
    options.add("protocol", "WORD[,WORD]", protocol_help(), protocols_);
    options.add(
        "facts", "N",
        fmt::format("multi_key: magic numbers hidden, one is asked for [{}]", task_.n_facts),
        facts_, in(1, 64));
    options.add("steps", "N", fmt::format("chains: tokens to decode [{}]", task_.n_steps), steps_,
                in(1, 1'000'000));
    options.add("turns", "N",
                "questions one after the other over one cache, for kinds with several", task_.turns,
                at_least(1));
    options.flag("shared-prefix",
                 "every turn starts from the context again: one prefill, N questions",
                 task_.shared_prefix);
    options.add("fed", "N", "protocol decode: last tokens of the prompt, fed one by one",
                task_.n_fed);
    options.flag("by-depth", "one row per depth instead of one per length", task_.by_depth);
    OptionSpec& chat = options.add(
        "chat", "WHEN",
        "ask in the model's own chat template: always (which --chat alone means), never, or auto: "
        "for kinds of which the dense model answers less than half in plain words",
        chat_);
    chat.bare_value = "always";
    options.add("gamma", "N", "tokens per verification for methods that need a draft",
                options_.gamma);
    options.exclude({"kinds", "examples"});
  }
  void check_task() const final {
    counts_of(lengths_, "lengths");
    parse_protocols(protocols_);
    const std::vector<PromptKind> kinds = parse_prompt_kinds(kinds_);
    if (chat_ != ChatUse::never && std::ranges::any_of(kinds, is_chain))
      throw UsageError("--chat: a chain is a text that goes on, not a question; leave it out");
    if (facts_ && std::ranges::find(kinds, PromptKind::multi_key) == kinds.end())
      throw UsageError("--facts: only --kinds multi_key hides several, found {}", kinds_);
    if (steps_ && std::ranges::none_of(kinds, is_chain))
      throw UsageError("--steps: only chains are decoded on (--kinds chain), found {}", kinds_);
  }
  bool adds_full() const final { return true; }
  bool shows_prompts() const final { return true; }
  std::vector<Phase> phases() const final { return phases_of(parse_protocols(protocols_)); }
  std::unique_ptr<SimulationTask> make_task(const SimulationSetup& setup) const final {
    return make_retrieval_task(setup, retrieval_options());
  }
  void prepare(const std::filesystem::path& model, const SimulationSetup& setup,
               ThreadPool& pool) final {
    note_always_sparse(setup);
    if (chat_ == ChatUse::never) return;
    const Tokenizer& tokenizer = *setup.models.tokenizer;
    if (chat_ == ChatUse::automatic && !ChatTemplate::find(model, tokenizer)) return;
    const ChatTemplate chat = load_chat_template(model, tokenizer);
    task_.chat_template = chat_words(chat);
    task_.chat = std::make_shared<const ChatFrame>(chat_frame(chat));
    const RetrievalOptions options = retrieval_options();
    const std::size_t n_kinds = options.examples.empty() ? options.kinds.size() : 1;
    task_.in_chat.assign(n_kinds, true);
    if (chat_ == ChatUse::always) return;
    const StopOnSignal stop;
    std::size_t kind = 0;
    for (const WordingTrial& trial : try_wordings(setup, options, pool, stop.token())) {
      task_.in_chat[kind++] = trial.in_chat;
      note(
          "kvscope: {} is asked {}: of {} other prompts the dense model answers {} in plain "
          "words{}",
          enum_name(trial.kind), trial.in_chat ? "in the " + task_.chat_template : "plainly",
          kTriedPrompts, percent_text(trial.plain),
          trial.chat ? fmt::format(" and {} in its template", percent_text(*trial.chat)) : "");
    }
  }
  std::string summary_table(const Json& rows) const final {
    std::string in_chat;
    const std::vector<PromptKind> kinds =
        task_.chat ? retrieval_options().kinds : std::vector<PromptKind>();
    for (std::size_t kind = 0; kind < task_.in_chat.size(); ++kind) {
      if (!task_.in_chat[kind]) continue;
      in_chat += in_chat.empty() ? "" : ", ";
      in_chat += enum_name(kinds[kind]);
    }
    return by_length(rows) +
           (in_chat.empty() ? "" : fmt::format("chat: {} ({})\n", task_.chat_template, in_chat));
  }

 private:
  /// Names the methods that see parts of a prompt which a protocol leaves dense.
  void note_always_sparse(const SimulationSetup& setup) const {
    const std::vector<Protocol> protocols = parse_protocols(protocols_);
    if (std::ranges::all_of(protocols, [](const Protocol& one) {
          return one.sparse_context && one.sparse_question && one.sparse_answer;
        }))
      return;
    std::set<std::string> names;
    for (const LivePair& pair : setup.pairs) {
      const SelectorCaps& caps = pair.options.selector.caps();
      if (caps.permanent || caps.needs_probs) names.insert(pair.options.selector.text());
    }
    if (!names.empty())
      note(
          "kvscope: {}: what they keep follows from every call, so that what a protocol leaves "
          "dense runs under them too; their costs are of the other calls",
          fmt::join(names, ", "));
  }
  RetrievalOptions retrieval_options() const {
    RetrievalOptions options = task_;
    options.lengths = counts_of(lengths_, "lengths");
    options.protocols = parse_protocols(protocols_);
    options.kinds = parse_prompt_kinds(kinds_);
    options.n_facts = facts_.value_or(options.n_facts);
    options.n_steps = steps_.value_or(options.n_steps);
    if (examples_) {
      options.examples = read_local_examples(*examples_);
      options.kinds = {PromptKind::local};
    }
    return options;
  }

  RetrievalOptions task_;
  ChatUse chat_ = ChatUse::never;
  std::string kinds_ = "passkey";
  std::optional<Index> facts_;
  std::optional<Index> steps_;
  std::optional<std::filesystem::path> examples_;
  std::string lengths_ = "1024,2048,4096,8192";
  std::string protocols_ = "all";
};

}  // namespace

KVSCOPE_COMMAND(420, SimulateRetrieval)

}  // namespace kvscope::cli
