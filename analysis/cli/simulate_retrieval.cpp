// kvscope simulate passkey, needle and ruler: facts hidden in long prompts, found or not.
#include "analysis/simulate/retrieval.hpp"

#include <algorithm>

#include "analysis/cli/output.hpp"
#include "analysis/cli/simulate_base.hpp"
#include "analysis/cli/text_table.hpp"
#include "core/base/lists.hpp"
#include "core/base/number_text.hpp"

template <>
struct kvscope::EnumNames<kvscope::RetrievalProtocol> {
  static constexpr std::array<std::string_view, 3> value = {"decode", "prefill", "all"};
};

namespace kvscope::cli {
namespace {

/// The lengths of a table in its order, each once.
std::vector<double> lengths_of(const ColumnTable& table) {
  std::vector<double> lengths;
  for (const ColumnTable::Row& row : table.rows) {
    const double length = cell_of(table, row, "length");
    if (std::find(lengths.begin(), lengths.end(), length) == lengths.end())
      lengths.push_back(length);
  }
  return lengths;
}

/// Rows methods (by kind, where there are several), columns lengths: accuracy, then KV reduction of
/// the longest.
std::string by_length(const ColumnTable& table) {
  const auto lengths = lengths_of(table);
  std::vector<std::string> header = {"kind", "method"};
  for (double length : lengths) header.push_back(number_text(length, 9));
  header.insert(header.end(), {"KV reduction", "dense solves it"});
  TextTable text(header);
  std::vector<std::pair<std::string, std::string>> done;  // (kind, method)
  for (const ColumnTable::Row& first : table.rows) {
    const std::pair key(first.texts[4], method_of(table, first));
    if (std::find(done.begin(), done.end(), key) != done.end()) continue;
    done.push_back(key);
    std::vector<std::string> cells = {key.first, key.second};
    std::string solved;
    double reduction = 0.0;
    for (double length : lengths) {
      double sum = 0.0;
      double n = 0.0;
      for (const ColumnTable::Row& row : table.rows) {
        if (row.texts[4] != key.first || method_of(table, row) != key.second ||
            cell_of(table, row, "length") != length) {
          continue;
        }
        const double prompts = cell_of(table, row, "prompts");
        sum += prompts * cell_of(table, row, "accuracy");
        n += prompts;
        reduction = cell_of(table, row, "kv_reduction");
        solved +=
            row.texts[5] == "no" && !solved.ends_with(number_text(length, 9))
                ? fmt::format("{}not at {}", solved.empty() ? "" : ", ", number_text(length, 9))
                : "";
      }
      cells.push_back(percent_text(sum / n));
    }
    cells.push_back(percent_text(reduction));
    cells.push_back(solved.empty() ? first.texts[5] : solved);
    text.add_row(std::move(cells));
  }
  return text.text();
}

class SimulateRetrieval : public SimulateCommand {
 protected:
  void declare_task(OptionSet& options) final {
    options.add("lengths", "LIST", "prompt lengths in tokens", lengths_);
    options.add("depths", "N", "depths of the fact, equally spaced; 1 stands in the middle",
                task_.n_depths);
    options.add("trials", "N", "prompts per length and depth", task_.trials);
    options.add("protocol", "WORD",
                "where the selector answers: decode (the end of the prompt and the answer), "
                "prefill (the prompt), all",
                task_.protocol);
    options.add("fed", "N", "protocol decode: last tokens of the prompt, fed one by one",
                task_.n_fed);
    options.flag("by-depth", "one row per depth instead of one per length", task_.by_depth);
    options.add("gamma", "N", "tokens per verification for methods that need a draft",
                options_.gamma);
    declare_kind(options);
  }
  virtual void declare_kind(OptionSet& options) { (void)options; }
  void check_task() const override { parse_counts(lengths_, "lengths"); }
  Phase phase() const final { return phase_of(task_.protocol); }
  virtual void set_kinds(RetrievalOptions& options) const { (void)options; }
  std::unique_ptr<SimulationTask> make_task(const SimulationSetup& setup) const final {
    RetrievalOptions options = task_;
    options.lengths = parse_counts(lengths_, "lengths");
    set_kinds(options);
    return make_retrieval_task(setup, options);
  }
  std::string summary_table(const SimulationResult& result) const final {
    return by_length(result.table);
  }

  RetrievalOptions task_;
  std::string lengths_ = "1024,2048,4096,8192";
};

class SimulatePasskey final : public SimulateRetrieval {
 public:
  std::string name() const override { return "simulate passkey"; }
  std::string summary() const override {
    return "pass keys found by decoding under a selector (Quest's protocol)";
  }
  std::string description() const override {
    return "A pass key is hidden in prose at several depths. All but the last tokens of the prompt "
           "are filled in densely; these and the answer run one by one under the selector. "
           "Evicting methods live through the prefill too. The embedded verifier finds every key "
           "up to 8192 tokens when it attends densely.";
  }
  std::vector<Example> examples() const override {
    return {{"kvscope simulate passkey --selector full,quest,streamingllm --budget 64,128,256,512",
             "lengths 1k to 8k, ten depths"}};
  }
};

class SimulateNeedle final : public SimulateRetrieval {
 public:
  SimulateNeedle() {
    task_.task = "needle";
    task_.protocol = RetrievalProtocol::all;
  }
  std::string name() const override { return "simulate needle"; }
  std::string summary() const override {
    return "a needle in a haystack under chunked prefill (QuoKA's protocol)";
  }
  std::string description() const override {
    return "The whole prompt goes in by chunks (--chunk, B_CP) under the selector (--budget, "
           "B_SA), "
           "and so does the answer. With --protocol prefill the answer is decoded densely, which "
           "lets the model look the needle up in the cache after all. With --facts 8, eight magic "
           "numbers are hidden and one is asked for. The grid depth x length is in the .json and "
           ".h5 results.";
  }
  std::vector<Example> examples() const override {
    return {{"kvscope simulate needle --selector full,quoka --budget ratio=0.25 --out needle.h5",
             "the grid of the paper's figure"},
            {"kvscope simulate needle --facts 8 --selector full,quoka --budget 512",
             "eight facts, one asked for"}};
  }

 protected:
  void declare_kind(OptionSet& options) override {
    options.add("facts", "N", "facts hidden; 1 is a pass key, more are magic numbers", n_facts_);
  }
  void check_task() const override {
    SimulateRetrieval::check_task();
    if (n_facts_ < 1 || n_facts_ > 64)
      throw UsageError(fmt::format("--facts: expected a value in [1, 64], found {}", n_facts_));
  }
  void set_kinds(RetrievalOptions& options) const override {
    options.kinds = {n_facts_ == 1 ? PromptKind::passkey : PromptKind::multi_key};
    options.n_facts = n_facts_;
  }

 private:
  Index n_facts_ = 1;
};

class SimulateRuler final : public SimulateRetrieval {
 public:
  SimulateRuler() {
    task_.task = "ruler";
    task_.protocol = RetrievalProtocol::all;
    task_.n_depths = 5;
    task_.trials = 2;
  }
  std::string name() const override { return "simulate ruler"; }
  std::string summary() const override { return "five kinds of long prompts, scores by length"; }
  std::string description() const override {
    return "Pass keys, one of several facts, all values of one thing, a chain of assignments, "
           "frequent words: RULER's tasks in words that the embedded models know. \"full\" always "
           "takes part; what it cannot do is marked, since a drop there says nothing. The embedded "
           "verifier was trained for the first two only.";
  }
  std::vector<Example> examples() const override {
    return {
        {"kvscope simulate ruler --selector quoka,streamingllm --budget ratio=0.25 --lengths "
         "1024,4096",
         "scores of all kinds at two lengths"}};
  }

 protected:
  void declare_kind(OptionSet& options) override {
    options.add("kinds", "LIST",
                fmt::format("of {}", fmt::join(EnumNames<PromptKind>::value, ", ")), kinds_);
  }
  bool adds_full() const override { return true; }
  void check_task() const override {
    SimulateRetrieval::check_task();
    parse_kinds();
  }
  void set_kinds(RetrievalOptions& options) const override { options.kinds = parse_kinds(); }

 private:
  std::vector<PromptKind> parse_kinds() const {
    std::vector<PromptKind> kinds;
    for (const std::string& word : split_words(kinds_, ',')) {
      PromptKind kind{};
      parse_field(Field{"--kinds", ""}, word, kind);
      if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end())
        throw UsageError(fmt::format("--kinds: {} is given twice", enum_name(kind)));
      kinds.push_back(kind);
    }
    return kinds;
  }

  std::string kinds_ = fmt::format("{}", fmt::join(EnumNames<PromptKind>::value, ","));
};

}  // namespace

std::unique_ptr<Command> make_simulate_passkey_command() {
  return std::make_unique<SimulatePasskey>();
}
std::unique_ptr<Command> make_simulate_needle_command() {
  return std::make_unique<SimulateNeedle>();
}
std::unique_ptr<Command> make_simulate_ruler_command() {
  return std::make_unique<SimulateRuler>();
}

}  // namespace kvscope::cli
