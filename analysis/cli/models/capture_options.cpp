#include "analysis/cli/models/capture_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "analysis/cli/frame/list_options.hpp"
#include "core/base/lists.hpp"
#include "core/base/number_text.hpp"
#include "core/base/suggest.hpp"
#include "core/tensor/dtype.hpp"
#include "traces/score_rounding.hpp"

namespace kvscope::cli {

namespace {

constexpr std::string_view kTopkPrefix = "attn-topk=";
constexpr Index kMaxTopk = 65536;

Index parse_number(std::string_view text, std::string_view what, Index low, Index high) {
  const auto value = number_from<Index>(text);
  if (!value || *value < low || *value > high) {
    throw UsageError("{}: expected a whole number in [{}, {}], found \"{}\"", what, low, high,
                     text);
  }
  return *value;
}

/// "A:B" to [A, B).
TokenRange parse_token_range(std::string_view text, std::string_view option) {
  const std::size_t colon = text.find(':');
  const auto begin = number_from<Index>(text.substr(0, colon));
  const auto end =
      number_from<Index>(colon == std::string_view::npos ? "" : text.substr(colon + 1));
  if (!begin || !end || *begin < 0 || *end <= *begin)
    throw UsageError("--{}: expected positions A:B with A < B, found \"{}\"", option, text);
  return {*begin, *end};
}

/// The words of --capture; `base` holds what is captured when none is given. Throws UsageError.
CaptureSet parse_capture(const std::vector<std::string>& words, CaptureSet base) {
  std::vector<std::string> known = {"no-qkv", "no-lse", "attn-topk"};
  for (const CaptureWord& one : kCaptureWords) known.emplace_back(one.word);
  for (const auto& list : words) {
    for (const std::string& word : split_words(list, ',')) {
      const bool takes_away = word == "no-qkv" || word == "no-lse";
      const auto found =
          std::ranges::find(kCaptureWords, word.substr(takes_away ? 3 : 0), &CaptureWord::word);
      if (found != kCaptureWords.end()) {
        base.*found->member = !takes_away;
      } else if (word.starts_with(kTopkPrefix)) {
        base.attn_topk = parse_number(std::string_view(word).substr(kTopkPrefix.size()),
                                      "--capture attn-topk", 1, kMaxTopk);
      } else if (word == "attn-topk") {
        throw UsageError("--capture: attn-topk needs a number, as in attn-topk=64");
      } else {
        throw UsageError("--capture: unknown word \"{}\"{}", word, did_you_mean(word, known));
      }
    }
  }
  if (base.words().empty()) throw UsageError("--capture: nothing is left to record");
  return base;
}

}  // namespace

void CaptureOptions::declare(OptionSet& options) {
  options.add("capture", "LIST",
              "what to add to q, k, v and lse: attn-topk=N (the N largest probabilities of each "
              "row), attn (dense maps: large), logits, stats (norms, page minima and maxima), "
              "routing (the experts of each token), k-pre-rope (keys before their rotation, too); "
              "no-qkv and no-lse take away; comma separated or repeated",
              capture);
  OptionSpec& type = options.add(
      "dtype", "TYPE",
      fmt::format("storage type of q, k and v; auto: the smallest that moves no score by more than "
                  "{} nats in the prompt's first chunk",
                  kMostMoved),
      dtype);
  type.choices = {"f32", "f16", "bf16", "auto"};
  options.add("layers", "LIST", "layers to record, like 0,3-5 [all]", layers);
  options.add("heads", "LIST", "query heads to record, with the KV heads they need [all]", heads);
  options.add(
      "rows", "A:B",
      "positions whose q, lse, attention and logits are kept; k and v are always kept whole [all]",
      rows);
  options.add("page-size", "N", "tokens per page of --capture stats", page_size, at_least(1));
  options.add("compression", "HOW", "none, or gzip:N with N from 1 to 9 (shuffled bytes)",
              compression);
  options.add("chunk", "N", "tokens per prefill call", chunk, at_least(1));
}

RecordOptions CaptureOptions::record_options() const {
  RecordOptions options{.capture = parse_capture(capture, CaptureSet{})};
  options.capture.page_size = page_size;
  const std::optional<DType> known = enum_from_name<DType>(dtype);
  if (!known && !is_auto())
    throw UsageError("--dtype: expected one of f32, f16, bf16, auto, found \"{}\"", dtype);
  options.dtype = known.value_or(DType::f32);
  options.chunk = chunk;
  if (!layers.empty()) options.layers = index_list_of(layers, "layers");
  if (!heads.empty()) options.q_heads = index_list_of(heads, "heads");
  if (!rows.empty()) options.rows = parse_token_range(rows, "rows");
  return options;
}

WriterOptions CaptureOptions::writer_options(bool overwrite) const {
  WriterOptions options{.overwrite = overwrite};
  if (compression != "none") {
    if (!compression.starts_with("gzip:"))
      throw UsageError("--compression: expected none or gzip:N, found \"{}\"", compression);
    options.gzip_level = static_cast<int>(
        parse_number(std::string_view(compression).substr(5), "--compression gzip", 1, 9));
  }
  return options;
}

}  // namespace kvscope::cli
