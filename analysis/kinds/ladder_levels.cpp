#include "analysis/kinds/ladder_levels.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/selectors/candidates.hpp"

namespace kvscope {

namespace {

/// What a restriction adds to a method's text.
struct Step {
  std::string restriction;
  std::string name;
  std::string option;  // of coarsen: "owner=layer"
  Index page = 0;      // of the level; 0: it is about something else
  Index every = 1;
  bool is_chunk = false;
};

std::vector<Step> steps(Index every, Index chunk) {
  return {{"", "as the method is", "", 0, 1, false},
          {"list owner", "a list per query head", "owner=q_head", 0, 1, false},
          {"list owner", "a list per KV head", "owner=kv_head", 0, 1, false},
          {"list owner", "one list for all heads", "owner=layer", 0, 1, false},
          {"granularity", "single tokens", "", 1, 1, false},
          {"granularity", "pages of 16", "page=16", 16, 1, false},
          {"granularity", "pages of 64", "page=64", 64, 1, false},
          {"granularity", "pages of 128", "page=128", 128, 1, false},
          {"steps", "chosen at every step", "", 0, 1, false},
          {"steps", fmt::format("chosen at every {}th step", every), "", 0, every, false},
          {"scores", "scores in f32", "scores=f32", 0, 1, false},
          {"scores", "scores in bf16", "scores=bf16", 0, 1, false},
          {"scores", "scores in fp8 (e4m3)", "scores=fp8", 0, 1, false},
          {"query", "each head's own query", "query=own", 0, 1, false},
          {"query", "mean query of a KV head", "query=mean", 0, 1, false},
          {"rows", "a list per query", "", 0, 1, false},
          {"rows", fmt::format("a list per chunk of {}", chunk), "", 0, 1, true}};
}

/// Options of coarsen by restriction, and the rest, put behind the method.
std::string text_with(const MethodSpec& method, const std::vector<const Step*>& taken) {
  std::string options;
  Index every = 1;
  for (const Step* step : taken) {
    if (!step->option.empty()) options += (options.empty() ? ":" : ",") + step->option;
    every = std::max(every, step->every);
  }
  std::string text = method.text();
  if (!options.empty()) text += "+coarsen" + options;
  return every > 1 ? fmt::format("{}+every={}", text, every) : text;
}

/// The method in words, or why there is none.
std::string try_method(const std::string& text, const std::optional<Budget>& budget, bool is_chunk,
                       MethodSpec& spec) {
  try {
    MethodSpec found = text;
    if (budget) check_budget_kind(found.text(), found.caps(), *budget);
    const Phase phase = is_chunk ? Phase::prefill : Phase::decode;
    if (!found.caps().is_defined(phase)) {
      return is_chunk ? "is not defined for chunks of queries"
                      : "is not defined for single queries";
    }
    spec = std::move(found);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

/// "quest chooses in pages of 16" out of "coarsen: quest chooses in pages of 16".
std::string without_prefix(std::string why) {
  const std::string prefix = "coarsen: ";
  return why.starts_with(prefix) ? why.substr(prefix.size()) : why;
}

}  // namespace

std::vector<LadderLevel> ladder_levels(const MethodSpec& method,
                                       const std::optional<Budget>& budget, Index every,
                                       Index chunk) {
  const Index own_page = method.caps().page_size;
  const std::vector<Step> all = steps(every, chunk);
  std::vector<LadderLevel> levels;
  std::vector<const Step*> taken;  // of each restriction the last one that the method could take
  bool is_chunk = false;
  for (const Step& step : all) {
    LadderLevel level;
    level.restriction = step.restriction;
    level.name = step.name;
    level.is_chunk = step.is_chunk;
    const bool is_too_fine = step.page > 0 && step.page < own_page;
    if (is_too_fine) {
      level.refused = level.together_refused =
          fmt::format("{} chooses in pages of {}", method, own_page);
      levels.push_back(std::move(level));
      continue;
    }
    const bool is_own_page = step.page == own_page;
    level.refused = is_own_page ? try_method(method.text(), budget, step.is_chunk, level.alone)
                                : without_prefix(try_method(text_with(method, {&step}), budget,
                                                            step.is_chunk, level.alone));
    if (step.restriction == "scores" && level.refused.empty())
      try_method(text_with(method, {&step}) + ",ties=last", budget, step.is_chunk,
                 level.other_order);
    std::vector<const Step*> with = taken;
    std::erase_if(with, [&](const Step* one) { return one->restriction == step.restriction; });
    with.push_back(&step);
    level.is_together_chunk = is_chunk || step.is_chunk;
    level.together_refused =
        !level.refused.empty()
            ? level.refused
            : without_prefix(try_method(text_with(method, with), budget, level.is_together_chunk,
                                        level.together));
    if (level.together_refused.empty()) {
      taken = std::move(with);
      is_chunk = level.is_together_chunk;
    }
    levels.push_back(std::move(level));
  }
  return levels;
}

}  // namespace kvscope
