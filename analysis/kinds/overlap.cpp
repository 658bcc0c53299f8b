#include "analysis/kinds/overlap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "analysis/base/columns.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/reproducible_sums.hpp"
#include "analysis/base/statistics.hpp"
#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/selectors/spec_lists.hpp"

namespace kvscope {

namespace {

using Members = std::uint64_t;  // a bit per pair of method and budget

/// Two sides, each a method or all the others.
struct Couple {
  Members first = 0, second = 0;
  Json names;
};

std::vector<Couple> couples_of(const PairPlan& plan) {
  const std::vector<ReplayPair>& pairs = plan.pairs;
  if (pairs.size() > 64) {
    throw ConfigError("overlap: expected at most 64 methods with their budgets at once, found {}",
                      pairs.size());
  }
  const auto budget_of = [&](std::size_t p) {
    return pairs[p].budget ? pairs[p].budget->to_string() : std::string();
  };
  std::vector<std::string> budgets;
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    if (pairs[p].budget && std::ranges::find(budgets, budget_of(p)) == budgets.end())
      budgets.push_back(budget_of(p));
  }
  if (budgets.empty()) budgets.emplace_back();
  std::vector<Couple> couples;
  for (const std::string& budget : budgets) {
    Members there = 0;
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      if (!pairs[p].budget || budget_of(p) == budget) there |= Members{1} << p;
    }
    const auto add = [&](std::size_t first, Members second, const std::string& name) {
      couples.push_back({Members{1} << first,
                         second,
                         {{"first", pairs[first].selector.text()},
                          {"second", name},
                          {"budget", budget.empty() ? Json(nullptr) : Json(budget)}}});
    };
    const auto is_there = [&](std::size_t p) { return (there >> p & 1) != 0; };
    for (std::size_t a = 0; a < pairs.size(); ++a) {
      for (std::size_t b = a + 1; b < pairs.size(); ++b)
        if (is_there(a) && is_there(b)) add(a, Members{1} << b, pairs[b].selector.text());
    }
    for (std::size_t p = 0; std::popcount(there) > 2 && p < pairs.size(); ++p)
      if (is_there(p)) add(p, there & ~(Members{1} << p), "others");
  }
  if (couples.empty()) {
    std::string left_out;
    for (const std::string& sentence : plan.skipped) left_out += "; left out: " + sentence;
    throw ConfigError(
        "overlap: expected at least two methods with the same budget; name them with --selector" +
        left_out);
  }
  return couples;
}

/// Of one couple in one head.
struct Overlap {
  double jaccard = kNan, shared_mass = kNan, first_mass = kNan, second_mass = kNan;
};

/// The sums over rows of one layer.
class OverlapSums {
 public:
  OverlapSums(const std::vector<Couple>& couples, std::size_t n_heads)
      : couples_(couples), sums_(n_heads * couples.size() * kSums) {}

  /// A row of the head at `slot`; keys before `end` count.
  void add(std::size_t slot, const MeasuredRow& row, KeyPos end) {
    const auto n = static_cast<std::size_t>(std::max<Index>(0, end - row.visible.begin));
    if (n == 0) return;
    std::vector<Members> keepers(n, 0);
    for (std::size_t p = 0; p < row.kept.size(); ++p) {
      for (const KeyPos pos : row.kept[p]) {
        if (pos >= row.visible.begin && pos < end)
          keepers[static_cast<std::size_t>(pos - row.visible.begin)] |= Members{1} << p;
      }
    }
    struct Part {
      double keys = 0.0, mass = 0.0;
    };
    std::map<Members, Part> parts;  // keys with the same keepers
    for (std::size_t i = 0; i < n; ++i) {
      Part& part = parts[keepers[i]];
      part.keys += 1.0;
      part.mass += row.probs[i];
    }
    for (std::size_t c = 0; c < couples_.size(); ++c) {
      std::array<Part, 4> by_side;  // neither, first alone, second alone, both
      for (const auto& [members, part] : parts) {
        Part& side = by_side[((members & couples_[c].first) != 0 ? 1 : 0) +
                             ((members & couples_[c].second) != 0 ? 2 : 0)];
        side.keys += part.keys;
        side.mass += part.mass;
      }
      const double either = by_side[1].keys + by_side[2].keys + by_side[3].keys;
      const std::size_t at = (slot * couples_.size() + c) * kSums;
      sums_.add(at, 1.0);
      for (std::size_t side = 1; side < 4; ++side) sums_.add(at + side, by_side[side].mass);
      if (either == 0.0) continue;
      sums_.add(at + 4, 1.0);
      sums_.add(at + 5, by_side[3].keys / either);
    }
  }

  /// NaN without rows.
  Overlap mean(std::size_t slot, std::size_t c) const {
    const std::size_t at = (slot * couples_.size() + c) * kSums;
    const double n = sums_.sum(at);
    return {sums_.sum(at + 5) / sums_.sum(at + 4), sums_.sum(at + 3) / n, sums_.sum(at + 1) / n,
            sums_.sum(at + 2) / n};
  }

 private:
  static constexpr std::size_t kSums = 6;
  const std::vector<Couple>& couples_;
  ReproducibleSums sums_;
};

struct OverlapColumn {
  const char* name;
  double Overlap::*member;
  const char* meaning;
};
constexpr OverlapColumn kOverlapColumns[] = {
    {"jaccard", &Overlap::jaccard, "keys that both keep / keys that one of them keeps"},
    {"shared_mass", &Overlap::shared_mass, "attention on keys that both keep"},
    {"first_mass", &Overlap::first_mass, "attention on keys that the first alone keeps"},
    {"second_mass", &Overlap::second_mass, "attention on keys that the second alone keeps"}};

}  // namespace

Json analyze_overlap(const TraceSource& trace, const OverlapOptions& options,
                     const AnalysisRun& run) {
  check_fields(options);
  require_full_qkv(trace, "overlap");
  const TraceInfo part = selected_part(trace.info(), options.selection);
  const PairPlan plan =
      plan_pairs(parse_methods({options.selector}, "selector"), split_budgets({options.budget}),
                 {options.phase}, trace.where(), "overlap");
  const std::vector<Couple> couples = couples_of(plan);
  std::vector<OverlapSums> sums(part.layers.size(), OverlapSums(couples, part.q_heads.size()));

  ReplayOptions replay = options.replay(part.q_heads);
  replay.dense_layers = 0;
  replay.calls = whole_periods(replay.calls, plan.pairs);
  const std::vector<TokenRange> calls = plan_calls(trace.info(), replay.calls, trace.where());
  replay.on_row = [&](const MeasuredRow& row) {
    const auto behind = std::ranges::upper_bound(calls, row.pos, {}, &TokenRange::begin);
    sums[static_cast<std::size_t>(part.layer_slot(row.layer))].add(
        static_cast<std::size_t>(part.q_slot(row.q_head)), row, std::prev(behind)->begin);
  };
  replay_layers(trace, /*draft=*/nullptr, part.layers, plan.pairs, replay, run.pool, run.progress,
                run.stop);

  run.begin("overlap", trace, with_part(fields_to_json(options), part));
  write_head_axes(run.output, part);
  LayerColumns columns(run.output, n_of(part.layers));
  ColumnsOf<Overlap> heads(columns, {n_of(part.q_heads), n_of(couples)}, {"q_head", "couple"});
  for (const OverlapColumn& column : kOverlapColumns) {
    heads.add<float>(column.name, column.member, "1", column.meaning, {{Total::mean, column.name}});
    run.output.add_plot({fmt::format("plot_{}", column.name),
                         column.name,
                         {"layer", "q_head", "."},
                         column.meaning});
  }
  Totals totals(columns);
  std::vector<std::array<Mean, std::size(kOverlapColumns)>> of_couple(couples.size());
  const auto measure = [&](Index slot, Index layer) {
    Members dense = 0;  // of which the layer says nothing
    for (std::size_t p = 0; p < plan.pairs.size(); ++p) {
      if (layer < dense_layers_of(plan.pairs[p].selector, 0)) dense |= Members{1} << p;
    }
    for (std::size_t h = 0; h < part.q_heads.size(); ++h) {
      for (std::size_t c = 0; c < couples.size(); ++c) {
        const bool is_dense = ((couples[c].first | couples[c].second) & dense) != 0;
        const Overlap overlap =
            is_dense ? Overlap{} : sums[static_cast<std::size_t>(slot)].mean(h, c);
        heads.put(static_cast<Index>(h), static_cast<Index>(c), overlap);
        for (std::size_t i = 0; i < of_couple[c].size(); ++i)
          of_couple[c][i].add(overlap.*kOverlapColumns[i].member);
      }
    }
  };
  const auto summarize = [&](Index, Index, Json& entry) {
    totals.add();
    Totals of_layer(columns);
    of_layer.add();
    entry.update(of_layer.to_json());
  };
  Json summary;
  summary["layers"] =
      measure_layers("overlap", part.layers, columns.arrays, {}, measure, summarize);
  summary["totals"] = totals.to_json();
  summary["couples"] = Json::array();
  for (std::size_t c = 0; c < couples.size(); ++c) {
    summary["couples"].push_back(couples[c].names);
    for (std::size_t i = 0; i < of_couple[c].size(); ++i)
      summary["couples"].back()[kOverlapColumns[i].name] = json_number(of_couple[c][i].value());
  }
  summary["skipped"] = plan.skipped;
  return run.finish(std::move(summary));
}

}  // namespace kvscope
