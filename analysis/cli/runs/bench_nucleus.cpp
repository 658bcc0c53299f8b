// kvscope bench nucleus: finding the keys that hold a share of a row by search and by sorting, and
// what SpecAttn's printed search leaves out.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/list_options.hpp"
#include "analysis/cli/runs/bench_report.hpp"
#include "analysis/cli/runs/simulate_base.hpp"
#include "core/attention/nucleus.hpp"
#include "core/attention/top_mass.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/rng.hpp"

namespace kvscope::cli {
namespace {

using WeightRow = std::vector<float>;

/// Softmax of normal numbers with the given spread, one row per counter.
WeightRow made_up_row(Index n_keys, double spread, std::uint64_t seed, std::uint64_t index) {
  const CounterRng rng({seed, index, static_cast<std::uint64_t>(n_keys)});
  std::vector<double> x(static_cast<std::size_t>(n_keys));
  double sum = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] = std::exp(spread * rng.normal(i));
  WeightRow row;
  for (const double v : x) row.push_back(static_cast<float>(v / sum));
  return row;
}

double kept_share(const WeightRow& row, const std::vector<Index>& kept) {
  double mass = 0.0;
  for (const Index i : kept) mass += row[static_cast<std::size_t>(i)];
  return mass / std::accumulate(row.begin(), row.end(), 0.0);
}

class BenchNucleus final : public BenchReportCommand {
 public:
  CommandCard card() const override {
    return {"bench nucleus",
            "time of finding the keys that hold a share of a row, against sorting",
            "Made-up attention rows (softmax of normal numbers). Sorting and the search for the "
            "exact threshold take turns on the same rows, on one thread; sorting gets the bare "
            "weights. The ratio is sorting over searching, low and high its quartiles over the "
            "rows. least_mass_MODE is the smallest share that a mode of specattn:nucleus kept of "
            "any row: the printed ones miss p.",
            {{"kvscope bench nucleus --keys 1024,8192 --p 0.95",
              "how much sooner the search is done (SpecAttn, figure 3)"}}};
  }

 protected:
  void declare_bench(OptionSet& options) override {
    options.add("keys", "LIST", "lengths of a row", keys_);
    options.add("p", "X", "share of the row", p_, above(0, 1));
    options.add("spread", "X", "standard deviation of the made-up scores", spread_, in(0.0, 100.0));
    options.add("rows", "N", "rows of each length", n_rows_, in(1, 1'000'000));
    options.add("seed", "N", "seed of the numbers", seed_);
  }

  void check_usage() const override {
    for (const Index n : counts_of(keys_, "keys")) {
      if (n > 100'000'000) throw UsageError("--keys: expected at most 100000000, found {}", n);
    }
  }

  /// On one thread, whatever the pool has.
  Json measure(Working& means) const override {
    const std::vector<Index> lengths = counts_of(keys_, "keys");
    Json rows = Json::array();
    for (const Index length : lengths) {
      if (means.stop.stop_requested()) throw Interrupted("bench nucleus stopped");
      rows.push_back(row_of(length));
      if (means.progress)
        means.progress({"nucleus", static_cast<Index>(rows.size()),
                        static_cast<Index>(lengths.size()), "lengths"});
    }
    return {{"bench", "nucleus"}, {"p", p_}, {"spread", spread_}, {"seed", seed_}, {"rows", rows}};
  }

  std::string describe(const Json& report) const override {
    return filled_table(report.at("rows"), {{"keys", "{keys:9}"},
                                            {"kept", "{kept}"},
                                            {"sorting", "{sort_seconds:s}"},
                                            {"searching", "{search_seconds:s}"},
                                            {"ratio", "{ratio}"},
                                            {"least mass, exact", "{least_mass_exact}"},
                                            {"paper_eps", "{least_mass_paper_eps}"},
                                            {"paper_10", "{least_mass_paper_10}"}});
  }

 private:
  Json row_of(Index n_keys) const {
    std::vector<double> sorting, searching, ratios;
    double kept = 0.0;
    std::array<double, EnumNames<NucleusMode>::value.size()> least;
    least.fill(1.0);
    for (Index r = 0; r < n_rows_; ++r) {
      const WeightRow row = made_up_row(n_keys, spread_, static_cast<std::uint64_t>(seed_),
                                        static_cast<std::uint64_t>(r));
      std::vector<Index> found;
      std::vector<double> weights(row.begin(), row.end());
      Index n_sorted = 0;
      sorting.push_back(seconds_of([&] { n_sorted = TopMass(weights).keys_for(p_); }));
      searching.push_back(seconds_of([&] { found = nucleus(row, p_, NucleusMode::exact); }));
      ratios.push_back(sorting.back() / searching.back());
      if (std::abs(n_sorted - static_cast<Index>(found.size())) >
          1) {  // f64 sums may end one key apart
        throw Error("bench nucleus: sorting keeps {} of {} keys, the search {}", n_sorted, n_keys,
                    found.size());
      }
      kept += static_cast<double>(found.size()) / static_cast<double>(n_rows_);
      for (std::size_t mode = 0; mode < least.size(); ++mode) {
        least[mode] = std::min(least[mode],
                               kept_share(row, nucleus(row, p_, static_cast<NucleusMode>(mode))));
      }
    }
    Json row = {{"keys", n_keys},
                {"p", p_},
                {"rows", n_rows_},
                {"kept", kept},
                {"sort_seconds", quantile(sorting, 0.5)},
                {"search_seconds", quantile(searching, 0.5)},
                {"ratio", quantile(ratios, 0.5)},
                {"ratio_low", quantile(ratios, 0.25)},
                {"ratio_high", quantile(ratios, 0.75)}};
    for (std::size_t mode = 0; mode < least.size(); ++mode)
      row[fmt::format("least_mass_{}", EnumNames<NucleusMode>::value[mode])] = least[mode];
    return row;
  }

  std::string keys_ = "1024,2048,4096,8192";
  double p_ = 0.95;
  double spread_ = 2.0;
  Index n_rows_ = 50;
  Index seed_ = 0;
};

}  // namespace

KVSCOPE_COMMAND(370, BenchNucleus)

}  // namespace kvscope::cli
