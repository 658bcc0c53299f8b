#include "analysis/options/instead.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/suggest.hpp"

namespace kvscope {

namespace {

using Pair = std::pair<std::string_view, std::string_view>;

/// What other programs, or this one before, call an option, and ours, with its value; the first
/// that a command has counts.
constexpr auto kOtherWords = std::to_array<Pair>({{"quiet", "progress none"},
                                                  {"silent", "progress none"},
                                                  {"verbose", "progress plain"},
                                                  {"dark", "theme dark"},
                                                  {"method", "selector"},
                                                  {"methods", "selector"},
                                                  {"policy", "selector"},
                                                  {"output", "out"},
                                                  {"force", "overwrite"},
                                                  {"units", "store DIR"},
                                                  {"shard", "store DIR --worker"},
                                                  {"unit", "store DIR --worker"},
                                                  {"n-tokens", "max-tokens"},
                                                  {"n-tokens", "lengths"},
                                                  {"tokens", "lengths"},
                                                  {"task", "kinds"}});

constexpr std::string_view kPages =
    "a page is HTML: kvscope export --html FILE --out page.html, of a trace or of a session of the "
    "window";
constexpr std::string_view kBenches =
    "programs of tests/bench measure it; bench_machine writes a profile for --hardware";
constexpr std::string_view kLedger = "bench_ledger, a program of tests/bench";
constexpr std::string_view kStores =
    "kvscope info STORE says what is done and missing, kvscope study plan --probe what it takes";
constexpr std::string_view kWhole =
    "peft's merge_and_unload() writes a whole model, which --model takes";

/// Commands, and what else one asks `kvscope help` about.
constexpr auto kInstead = std::to_array<Pair>(
    {{"merge",
      "the same command with --store DIR --worker on each machine, then once with --store DIR "
      "--out FILE"},
     {"pareto", "kvscope figure pareto"},
     {"analyze pruning",
      "kvscope analyze quest has the bounds; that choosing exactly by them reads nearly all pages "
      "stands in COMMANDS.md"},
     {"analyze ties", "kvscope ladder, whose columns tie_share and tie_changed count them"},
     {"simulate passkey", "kvscope simulate retrieval, whose first kind is the pass key"},
     {"simulate needle", "kvscope simulate retrieval --kinds multi_key --facts 8"},
     {"simulate ruler", "kvscope simulate retrieval --kinds ruler"},
     {"simulate chain", "kvscope simulate retrieval --kinds chain --protocol answer --steps N"},
     {"bench prefill", "kvscope bench live"},
     {"bench decode", "kvscope bench live"},
     {"bench machine", kBenches},
     {"bench record", kBenches},
     {"study work", "kvscope study run FILE --worker"},
     {"study figures", "kvscope study report"},
     {"story", kPages},
     {"film", kPages},
     {"tour", "the window has it: kvscope-explorer"},
     {"kvset", "a recording is one file; each file of a set opens by itself"},
     {"lora", kWhole},
     {"vllm", "kvscope record of a model with the same weights"}});

/// An option that went, where the command has the option beside it (any where that is empty).
struct Gone {
  std::string_view option;
  std::string_view beside;
  std::string_view instead;
};

constexpr auto kGone = std::to_array<Gone>(
    {{"frames", "html", kPages},
     {"over", "html", kPages},
     {"split", "layers", "a recording is one file; --layers 0-3 records some of its layers"},
     {"list-units", "store", kStores},
     {"probe", "store", kStores},
     {"answer", "runs", "kvscope explain of prompts always puts back; --runs 0 gives ranks alone"},
     {"put-back", "runs",
      "kvscope explain of prompts always puts back; --runs 0 gives ranks alone"},
     {"check", "hardware", kLedger},
     {"ledger", "hardware", kLedger},
     {"clock", "hardware", kLedger},
     {"measured", "hardware", kLedger},
     {"live", "hardware", kLedger},
     {"adapter", "model", kWhole},
     {"manual", "", "kvscope help --all"}});

}  // namespace

std::string_view instead_of(std::string_view word) {
  const auto found = std::ranges::find(kInstead, word, &Pair::first);
  return found == kInstead.end() ? std::string_view() : found->second;
}

std::string option_meant(std::string_view word, const std::vector<std::string>& known,
                         std::string_view prefix) {
  for (const auto& [other, ours] : kOtherWords) {
    const bool has_it = std::ranges::find(known, ours.substr(0, ours.find(' '))) != known.end();
    if (word == other && has_it) return fmt::format(". Did you mean {}{}?", prefix, ours);
  }
  for (const auto& [option, beside, instead] : kGone) {
    const bool fits = beside.empty() || std::ranges::find(known, beside) != known.end();
    if (word == option && fits) return fmt::format(". Instead: {}", instead);
  }
  return did_you_mean(word, known, prefix);
}

}  // namespace kvscope
