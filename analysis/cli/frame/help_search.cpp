#include "analysis/cli/frame/help_search.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/help.hpp"
#include "analysis/figures/figure_kind.hpp"
#include "core/selectors/registry.hpp"
#include "notebooks_export/metric_info.hpp"

namespace kvscope::cli {

namespace {

using Words = std::vector<std::string>;

/// What people call it: words that stand in no summary.
const std::map<std::string, std::string>& synonyms() {
  static const std::map<std::string, std::string> kAll = {
      {"record",
       "own text dump capture trace save store qkv keys queries values attention checkpoint gguf "
       "hf huggingface transformers prompt prefill decode chat hdf5 h5 dtype bf16 resume generate "
       "safetensors gqa cuda nvidia gpu"},
      {"info",
       "show inspect describe contents metadata header shapes list what is this file provenance "
       "hash which model made progress"},
      {"models",
       "download find local downloaded available checkpoint gguf supported huggingface ollama "
       "quantization quantized quantised fp8 gptq awq lora adapter safetensors"},
      {"verify", "damaged corrupt broken integrity checksum check valid trust error rounding"},
      {"recover", "crash crashed killed truncated incomplete unfinished repair salvage lost part"},
      {"tokenize", "tokenizer vocabulary encode decode count tokens length bpe ids"},
      {"analyze quoka", "query oriented cosine chunked prefill representative far mean score"},
      {"analyze theorem-b1", "theorem lemma proof cosine similarity inequality violated quoka"},
      {"analyze quest", "pages page upper bound min max block tightness criticality"},
      {"analyze layer-map", "kl divergence draft verifier speculative specattn alignment match"},
      {"analyze geometry",
       "pca 2d projection embedding cluster scatter space directions angle cosine shape"},
      {"analyze query-selection", "correlation which queries pick matter choose scatter"},
      {"analyze coverage",
       "sparsity sparse mass nucleus top-p needed keys enough recall how many heat map heatmap"},
      {"analyze attention-map", "attention weights matrix heat map heatmap pattern pooled maps"},
      {"analyze heads",
       "head types entropy atlas induction retrieval streaming local sink sinks kinds functions "
       "compare traces"},
      {"analyze overlap", "agreement jaccard same keys differ intersection similar disagree"},
      {"analyze row-sharing", "verification verify rows union shared keys kernel load reuse"},
      {"explain",
       "why missing lost evicted dropped token reason cause wrong answer failed failure blame "
       "rank cut-off attribution debug put back"},
      {"sweep",
       "run compare benchmark methods baselines budgets knob recall mass accuracy best "
       "better versus vs replay equal same cost fair comparison grid"},
      {"selectors",
       "selftest methods algorithms available baselines eviction policies options "
       "parameters supported list page size window"},
      {"fit", "train calibrate calibration offline learn tune statistics projection prepare"},
      {"ladder",
       "ties kernel approximations levels rungs restrictions concessions serving engine vllm "
       "sglang implementation"},
      {"cost",
       "memory gb size hardware latency predict estimate flops bytes bandwidth speedup gpu gpus "
       "roofline how much kv cache a100 h100 traffic"},
      {"bench select",
       "speed latency benchmark microbenchmark overhead kernel selection fast hardware"},
      {"bench live", "ttft throughput speed speedup latency tokens per second end-to-end wall"},
      {"bench nucleus", "top-p sort sorting binary search speed threshold"},
      {"simulate perplexity", "ppl quality loss nll likelihood language modelling degradation"},
      {"simulate retrieval",
       "needle haystack niah passkey ruler longbench qa accuracy long-context multi-hop kv chain "
       "recall facts"},
      {"simulate speculative", "acceptance accepted drafting draft tokens verification specattn"},
      {"fit draft", "small model truncated layers distill early exit self-speculative"},
      {"papers", "claims reproduce replicate verify verdict published results true reported"},
      {"study plan", "experiment grid estimate dry run toml campaign"},
      {"study run",
       "experiment batch slurm mpi ray cluster parallel jobs resume many workers shard engine"},
      {"study status", "progress running failed errors remaining eta left done monitor jobs"},
      {"study table", "aggregate combine csv results collect"},
      {"study report", "write up summary html markdown page"},
      {"table", "latex tex markdown csv bold significance paper columns rows export booktabs"},
      {"figure",
       "error bars pareto plot graph chart draw pdf svg png pgfplots tikz picture curve "
       "matplotlib"},
      {"figures", "plots which available kinds gallery plot types"},
      {"notebook", "ipynb jupyter numpy python pandas colab"},
      {"export",
       "html send colleague share web browser page image interactive publish story film bookmarks"},
      {"reproduce", "same bytes manifest again identical regenerate figure provenance"},
      {"version", "build commit compiler bug simd avx"},
      {"completion", "tab shell bash zsh fish autocomplete"},
      {"help",
       "manual documentation usage man options install quickstart license cite exit code codes"},
  };
  return kAll;
}

/// What is asked of the window, which is a program of its own, as words_of() has them.
const std::set<std::string> kOfWindow = {"gui",        "window", "explor", "explorer",
                                         "interactiv", "imgui",  "click",  "screenshot"};

bool is_filler(const std::string& word) {
  static const std::set<std::string> kFillers = {
      "a",    "an",  "and", "are", "at",  "be",  "by",   "can", "do",  "does", "for", "from",
      "i",    "in",  "is",  "it",  "me",  "my",  "of",   "on",  "or",  "the",  "to",  "was",
      "with", "how", "use", "get", "did", "has", "have", "so",  "its", "this"};
  return kFillers.contains(word);
}

/// In lower case, without endings that change no meaning; hyphens part words.
Words words_of(const std::string& text) {
  Words words;
  std::string word;
  for (const char c : text + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    for (const std::string_view ending : {"ing", "ed", "es", "s"}) {
      if (word.size() < ending.size() + 4 || !word.ends_with(ending)) continue;
      word.resize(word.size() - ending.size());
      break;
    }
    if (word.size() > 4 && word.ends_with('e')) word.pop_back();
    if (word.size() > 1 && !is_filler(word)) words.push_back(word);
    word.clear();
  }
  return words;
}

/// Where a command has a word counts by the best place.
using Weights = std::map<std::string, double>;

void add_words(Weights& weights, const std::string& text, double weight) {
  for (const std::string& word : words_of(text)) {
    double& known = weights[word];
    known = std::max(known, weight);
  }
}

Weights weights_of(Command& command) {
  Weights weights;
  OptionSet options;
  command.declare(options);
  add_words(weights, command.name(), 6.0);
  add_words(weights, other_words(command.name()), 5.0);
  if (command.name() == "selectors" || command.name() == "sweep") {
    for (const SelectorEntry& entry : selector_registry().entries())
      add_words(weights, entry.name, 4.0);
  }
  add_words(weights, command.card().summary, 4.0);
  add_words(weights, command.card().description, 1.0);
  for (const Example& example : command.card().examples) add_words(weights, example.meaning, 1.0);
  for (const OptionSpec& option : options.options()) {
    add_words(weights, option.name, 1.0);
    add_words(weights, option.help, 0.3);
  }
  return weights;
}

}  // namespace

std::string other_words(const std::string& command) {
  const auto found = synonyms().find(command);
  return found == synonyms().end() ? "" : found->second;
}

bool is_about_window(const std::string& words) {
  return std::ranges::any_of(words_of(words),
                             [](const std::string& word) { return kOfWindow.contains(word); });
}

std::vector<std::string> commands_about(const std::string& words, std::size_t n) {
  const auto commands = all_commands();
  std::vector<Weights> weights;
  for (const auto& command : commands) weights.push_back(weights_of(*command));
  std::vector<double> scores(commands.size(), 0.0);
  for (const std::string& word : words_of(words)) {
    const auto n_with = static_cast<double>(
        std::ranges::count_if(weights, [&](const Weights& each) { return each.contains(word); }));
    if (n_with == 0.0) continue;
    const double rarity = std::log1p(static_cast<double>(commands.size()) / n_with);
    for (std::size_t i = 0; i < commands.size(); ++i) {
      const auto found = weights[i].find(word);
      if (found != weights[i].end()) scores[i] += rarity * found->second;
    }
  }
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    if (scores[i] > 0.0) order.push_back(i);
  }
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  order.resize(std::min(order.size(), n));
  std::vector<std::string> names;
  for (const std::size_t i : order) names.push_back(commands[i]->name());
  return names;
}

std::string help_about(const std::string& words) {
  constexpr std::size_t kMost = 5;
  constexpr std::size_t kWidth = 23;
  const Words asked = words_of(words);
  if (asked.empty()) return {};
  const auto is_named = [&](const std::string& name) {
    const Words parts = words_of(name);
    return std::ranges::all_of(
        asked, [&](const std::string& word) { return std::ranges::count(parts, word) > 0; });
  };
  const auto all = all_commands();
  std::string commands;
  if (is_about_window(words))
    commands = two_columns("kvscope-explorer", "the window: looks at traces and results", kWidth);
  for (const std::string& name : commands_about(words, kMost)) {
    const auto at = std::ranges::find_if(all, [&](const auto& c) { return c->name() == name; });
    commands += two_columns(name, (*at)->card().summary, kWidth);
  }
  std::map<std::string, Words> commands_of;  // by option
  for (const auto& command : all) {
    OptionSet declared;
    command->declare(declared);
    for (const OptionSpec& option : declared.options()) {
      if (is_named(option.name)) commands_of["--" + option.name].push_back(command->name());
    }
  }
  std::string options;
  for (const auto& [option, of] : commands_of)
    options += two_columns(option, fmt::format("of {}", fmt::join(of, ", ")), kWidth);
  std::string figures;
  for (const FigureKind& kind : figure_kinds())
    if (is_named(kind.name)) figures += two_columns(kind.name, kind.shows, kWidth);
  std::string methods;
  for (const SelectorEntry& entry : selector_registry().entries()) {
    if (is_named(entry.name) || is_named(entry.title))
      methods += two_columns(entry.name, entry.idea, kWidth);
  }
  std::string columns;
  const auto as_column = [](unsigned char c) { return c == ' ' ? '_' : std::tolower(c); };
  std::string name(words.size(), ' ');
  std::ranges::transform(words, name.begin(), as_column);
  if (const auto column = find_metric(name)) columns = two_columns(name, column->title, kWidth);

  std::string out;
  const std::pair<const char*, const std::string&> parts[] = {
      {"commands", commands},
      {"options", options},
      {"figures (kvscope figures NAME)", figures},
      {"methods (kvscope selectors NAME)", methods},
      {"columns of tables", columns}};
  for (const auto& [title, lines] : parts) {
    if (!lines.empty()) out += fmt::format("{}{}\n{}", out.empty() ? "" : "\n", title, lines);
  }
  return out;
}

}  // namespace kvscope::cli
