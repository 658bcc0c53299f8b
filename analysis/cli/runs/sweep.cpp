// kvscope sweep: traces x selectors x budgets in one table.
#include "analysis/sweep/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <set>

#include "analysis/base/calibration_notes.hpp"
#include "analysis/base/mapped.hpp"
#include "analysis/base/number_formats.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/list_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cli/runs/replay_arguments.hpp"
#include "analysis/cli/runs/run_job.hpp"
#include "analysis/options/instead.hpp"
#include "analysis/sweep/sweep_result.hpp"
#include "analysis/sweep/sweep_work.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"
#include "core/base/version.hpp"
#include "core/base/whole_file.hpp"
#include "core/sim/replay_run.hpp"
#include "core/sim/rotations.hpp"
#include "traces/reader.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxBytes = 1 << 20;
constexpr std::string_view kCommandLineOnly[] = {"help", "config", "resume", "overwrite"};

/// The name under which a file may hold this positional argument: "TRACE" is "traces".
std::string key_of_positional(const OptionSpec& spec) {
  std::string key;
  for (char c : spec.name) key += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return key + "s";
}

std::string text_of(const nlohmann::json& value, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  throw UsageError("{}: expected text, a number or true, found {}", where,
                   kvscope::describe(value));
}

std::vector<std::string> texts_of(const nlohmann::json& value, const std::string& where) {
  if (!value.is_array()) return {text_of(value, where)};
  return mapped<std::string>(value, [&](const auto& one) { return text_of(one, where); });
}

void apply(OptionSet& options, const OptionSpec& spec, const nlohmann::json& value,
           const std::string& where) {
  const auto& others = kOptionsOfNoNumber;  // which a worker has from who started it
  if (options.given(spec.name)) return;
  if (options.given("worker") && std::ranges::find(others, spec.name) != std::end(others)) return;
  if (spec.placeholder.empty()) {
    if (!value.is_boolean())
      throw UsageError("{}: expected true or false, found {}", where, kvscope::describe(value));
    if (value.get<bool>()) options.give(spec, "");
    return;
  }
  const std::vector<std::string> texts = texts_of(value, where);
  if (spec.repeatable) {
    for (const std::string& text : texts) options.give(spec, text);
  } else {
    options.give(spec, fmt::format("{}", fmt::join(texts, ",")));
  }
}

/// Sets every option that an experiment file names and the command line did not give. Keys are
/// option names with dashes or underscores (positional arguments: "traces"); lists set repeatable
/// options one by one and are joined with commas for the others. Throws UsageError for an unknown
/// key (naming the nearest) or a value of the wrong kind, IoError or FormatError for a file that
/// cannot be read.
void apply_experiment_file(const fs::path& file, OptionSet& options) {
  const nlohmann::json json = parse_json(read_whole_file(file, kMaxBytes), file.string());
  const JsonObject object(json, file.string());
  std::vector<std::string> known;
  for (const OptionSpec& spec : options.positionals()) known.push_back(key_of_positional(spec));
  for (const OptionSpec& spec : options.options()) {
    if (std::find(std::begin(kCommandLineOnly), std::end(kCommandLineOnly), spec.name) ==
        std::end(kCommandLineOnly)) {
      known.push_back(spec.name);
    }
  }
  for (const auto& [key, value] : json.items()) {
    const std::string name = detail::dashed(key);
    const std::string where = fmt::format("{}: {}", file.string(), key);
    if (std::ranges::find(known, name) == known.end()) {
      throw UsageError("{}: unknown key {}{}", file.string(), quote(key),
                       option_meant(name, known, ""));
    }
    if (value.is_null()) continue;
    try {
      for (const OptionSpec& spec : options.positionals()) {
        if (key_of_positional(spec) == name) apply(options, spec, value, where);
      }
      for (const OptionSpec& spec : options.options()) {
        if (spec.name == name) apply(options, spec, value, where);
      }
    } catch (const ConfigError& error) {
      throw UsageError("{}: {}", file.string(), error.what());
    }
  }
}

/// `lines`: as means_of_pair has them, where each budget is what it was to be.
std::vector<std::string> remarks_on(const Json& lines, bool is_matched) {
  const char* const cost = is_matched ? "match" : "asked";
  std::vector<std::string> remarks;
  if (!lines.empty() &&
      std::ranges::all_of(lines, [](const Json& line) { return line.at("only_windows") == true; }))
    remarks.emplace_back(
        "no method chose anything: every layer that was asked for attends within a window of its "
        "own (kvscope info shows them), so there is nothing to measure");
  std::set<std::string> all;
  for (const Json& line : lines) {
    if (line.at("keeps_all") == true)
      all.insert(text_at(line, "selector") + " " + text_at(line, cost));
  }
  if (!all.empty())
    remarks.push_back(
        fmt::format("{}: every key is kept, so that nothing was chosen", fmt::join(all, ", ")));
  std::set<std::string> above;
  for (const Json& oracle : lines) {
    if (oracle.at("selector") != "oracle-topk") continue;
    for (const Json& line : lines) {
      if (line.at("trace") == oracle.at("trace") && line.at(cost) == oracle.at(cost) &&
          line.at("selector") != "full" &&
          number_at(line, "mass_mean") > number_at(oracle, "mass_mean") + 5e-4)
        above.insert(text_at(line, "selector"));
    }
  }
  if (!above.empty())
    remarks.push_back(fmt::format(
        "{} {} more of the attention than oracle-topk at the same {}. No "
        "method chooses better than the oracle: {}{}",
        fmt::join(above, ", "), above.size() == 1 ? "keeps" : "keep",
        is_matched ? "cost" : "budget",
        is_matched ? "they divide their keys unevenly among rows, and it does not"
                   : "they keep more keys (column kept: a method's own chunk or window may come on "
                     "top of the budget), or divide them unevenly among rows",
        is_matched ? "" : "; --match keys=N compares at the same number of keys"));
  return remarks;
}

/// The layers of one trace under one pair, as a row of the table: the texts of the first, and means
/// over those without a window. Of the blocks from `first` on; moves it behind them.
Json means_of_pair(const std::vector<SweepBlock>& blocks, std::size_t& first) {
  const SweepBlock& head = blocks[first];
  const SweepRow& row = head.rows.front();
  std::array<Mean, kSweepNumbers.size()> means;
  Index n_layers = 0, n_dense = 0, n_windowed = 0;
  double lowest = std::numeric_limits<double>::infinity();  // mass of a row
  bool only_windows = true;
  for (; first < blocks.size() && blocks[first].trace == head.trace &&
         blocks[first].pair == head.pair;
       ++first) {
    const SweepRow& layer = blocks[first].rows.front();
    const double window = layer.number(SweepNumber::window);
    ++n_layers;
    n_dense += layer.number(SweepNumber::dense) != 0.0 ? 1 : 0;
    only_windows = only_windows && window == 1.0;
    n_windowed += window != 0.0 ? 1 : 0;
    if (window != 0.0) continue;
    for (std::size_t c = 0; c < means.size(); ++c) means[c].add(layer.numbers[c]);
    lowest = std::min(lowest, layer.number(SweepNumber::mass_min));
  }
  Json pair;
  for (std::size_t t = 0; t < kSweepTexts.size(); ++t)
    pair[std::string(kSweepTexts[t])] = row.texts[t];
  for (std::size_t c = 0; c < means.size(); ++c)
    pair[std::string(kSweepNumbers[c])] = means[c].value();
  const double budget = row.number(SweepNumber::budget);
  const bool has_budget = !std::isnan(budget);
  pair.update(
      {{"asked", has_budget ? fmt::format("{}={}", row.text(SweepText::budget_kind), budget) : "-"},
       {"reached", number_text(row.number(SweepNumber::match_reached)) +
                       (row.text(SweepText::match_note).empty() ? "" : " *")},
       {"lowest", std::isfinite(lowest) ? lowest : kNan},
       {"n_layers", n_layers},
       {"n_dense", n_dense},
       {"n_windowed", n_windowed},
       {"only_windows", only_windows},
       {"keeps_all",  // a budget that changes nothing
        has_budget && n_dense < n_layers && number_at(pair, "density") >= 1.0}});
  return pair;
}

struct SweepSummary {
  std::string text;
  /// What a reader of the numbers may take for an error, or for more than it is.
  std::vector<std::string> remarks;
};

/// One line per trace, selector and budget: means over the layers without a sliding window. Layers
/// that a method leaves dense count with their mass of 1; the last column says how many those are.
SweepSummary sweep_summary(const SweepResult& result) {
  const bool many_traces = result.traces.size() > 1;
  const bool is_matched = result.config.contains("match");
  const bool has_split = std::ranges::any_of(result.blocks, [](const SweepBlock& block) {
    return std::isfinite(block.rows.front().number(SweepNumber::lost_dividing));
  });
  std::vector<FilledColumn> columns;
  const auto add = [&](bool is_shown, std::initializer_list<FilledColumn> more) {
    if (is_shown) columns.insert(columns.end(), more);
  };
  add(many_traces, {{"trace", "{trace}"}});
  add(true, {{"selector", "{selector}"}});
  add(!is_matched, {{"budget", "{asked}"}});
  add(is_matched, {{"setting", "{knob}"}, {"to meet", "{match}"}, {"reached", "{reached}"}});
  add(true, {{"kept", "{kept}"}, {"union", "{union}"}, {"mass", "{mass_mean}"}});
  add(has_split, {{"lost choosing", "{lost_choosing}"}, {"lost dividing", "{lost_dividing}"}});
  add(true, {{"p5 by layer", "{mass_p05}"},
             {"min", "{lowest}"},
             {"recall@10", "{recall10}"},
             {"rel. error", "{output_error_rel}"},
             {"Jaccard", "{jaccard}"},
             {"bytes/call", "{bytes:B}"},
             {"dense layers", "{n_dense}/{n_layers}"}});
  Json rows = Json::array();
  std::string notes;
  Json lines = Json::array();  // of pairs that cost what they were to
  std::size_t n_windowed = 0;  // layers of a trace
  for (std::size_t next = 0; next < result.blocks.size();) {
    rows.push_back(means_of_pair(result.blocks, next));
    const Json& pair = rows.back();
    n_windowed = std::max(n_windowed, pair.at("n_windowed").get<std::size_t>());
    if (pair.at("match_note") != "")
      notes += filled_in(many_traces ? "* {trace}, {selector}, {match}: {match_note}\n"
                                     : "* {selector}, {match}: {match_note}\n",
                         pair);
    else
      lines.push_back(pair);
  }
  std::string text = filled_table(rows, columns) + notes + windows_left_out(n_windowed);
  if (std::ranges::any_of(result.traces, &SweepTraceInfo::has_sinks))
    text += "Shares of attention are of what keys get: sink logits take the rest.\n";
  text += NumberFormats::of(result.config).line();
  for (const std::string& sentence : calibration_warnings(result.config))
    text += fmt::format("warning: {}\n", sentence);
  return {text, remarks_on(lines, is_matched)};
}

class SweepCommand final : public Command {
 public:
  CommandCard card() const override {
    return {
        "sweep",
        "compare selectors over budgets on recorded traces",
        "Replays every selector with every budget on the recorded q, k and v and measures what "
        "it keeps: attention mass, recall, output error, similarity to the oracle, keys, FLOPs, "
        "bytes. Each layer sees the dense model's tensors, so errors do not compound. Methods "
        "that do not take a kind of budget, or are not defined for the phase, are left out and "
        "named. --resume continues an interrupted sweep. --selector all means every method that "
        "the run supports. --match compares at equal measured cost: the budget setting of each "
        "method (its budget, or the option that sets its cost; column knob) is adjusted until the "
        "keys or bytes of the measured rows, dense layers and forced keys included, reach the "
        "target; rows have the setting, the cost reached and, if it differs, the reason. Where "
        "keys are matched, two rows are added: ceiling, the most attention that so many keys can "
        "hold however divided among rows; oracle-topk, the same, equally many per row. They "
        "split what a method loses: by choosing (lost_choosing: other keys of the same rows hold "
        "more) and by dividing (lost_dividing: other rows and heads need them more).",
        {{"kvscope sweep trace.h5 --selector quoka,quest,streamingllm --budget 64,128,256",
          "three selectors, three budgets, prefill in chunks of 128"},
         {"kvscope sweep trace.h5 --phase decode --selector quest:page-size=32 --budget "
          "ratio=0.1,0.2 --out q.csv",
          "decode steps; the table as CSV"},
         {"kvscope sweep trace.h5 --config experiment.json --out all.h5",
          "a sweep that a file describes"},
         {"kvscope sweep trace.h5 --selector quest --budget 64 --out q.csv --engine local "
          "--workers 4",
          "the items of the sweep in four processes"},
         {"kvscope sweep trace.h5 --phase decode --budget 64 "
          "--selector quest,keydiff@tokens=512+quest",
          "Quest on all keys, and on the 512 that KeyDiff leaves"},
         {"kvscope sweep trace.h5 --phase decode --selector all --match density=0.05 --out "
          "equal.h5",
          "every method, each at a twentieth of the keys; kvscope figure equal-cost draws it"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("TRACE", "recorded traces", traces_, /*required=*/false)
        .of({FileKind::trace});
    replay_.declare(options);
    options.add(
        "match", "LIST",
        "instead of --budget: density=0.05,0.1 (keys kept of those a query sees), keys=128 (kept "
        "per query), bytes=65536 (read per call and layer), as measured, or us=20 (predicted "
        "microseconds of a call in a layer, on the card of --hardware)",
        match_);
    options.flag("no-ceiling", "with --match: leave out the rows that split what is lost",
                 no_ceiling_);
    options.add("draft", "TRACE",
                "the draft model's trace over the same tokens, one for each trace", drafts_);
    options.add(
        "calibration", "TRACE",
        "the same model's trace over another text, for methods that learn before they see a "
        "sequence and name no file of kvscope fit (loki:basis=calibrated, kascade)",
        calibration_);
    options.add(
        "hardware", "NAME",
        "adds predicted microseconds on this card: a profile of kvscope cost, by name or as a file",
        hardware_);
    options.add("resamples", "N", "resamples behind the confidence intervals", resamples_,
                at_least(1));
    options.add("seed", "N", "seed of the resampling", seed_, at_least(0));
    job_.declare_table(options, "the unaggregated arrays", "sweep");
    options
        .add("config", "FILE",
             "an experiment file: a JSON object with these options, as trusted as a command "
             "line (it may name outputs and engines); the command line wins",
             config_)
        .kind = ValueKind::file;
    job_.declare_work(options);
    options.exclude({"match", "budget"}, ": a match finds every method's budget");
    options.then([this](OptionSet& set) {
      if (config_) apply_experiment_file(*config_, set);
    });
  }

  int run(const OptionSet& options, const std::string&) override {
    check_usage();
    std::optional<TraceFile> calibration;
    if (calibration_) calibration.emplace(TraceFile::open(*calibration_, {}));
    SweepOptions sweep = make_options();
    sweep.replay.calibration = calibration ? &*calibration : nullptr;
    const SweepPlan plan = plan_sweep(make_traces(), std::move(sweep));
    for (const std::string& sentence : plan.skipped) note("kvscope: left out: {}", sentence);
    for (const std::string& sentence : calibration_warnings(plan.config))
      note("kvscope: warning: {}", sentence);

    job_.check_inputs();
    ThreadPool pool(job_.work.n_threads());
    const Work work = sweep_work(plan, pool);
    const Json says = {
        {"version", writer_name()}, {"config_hash", plan.config_hash}, {"skipped", plan.skipped}};
    if (job_.is_complete(says,
                         [&] { return sweep_csv(sweep_result(plan, work, all_failed(work))); }))
      return kOk;
    if (const auto code = job_.finish(work, options, name())) return *code;
    const SweepResult result = sweep_result(plan, work, job_.store());
    if (job_.writes())
      write_table_output(
          {[&] { return sweep_csv(result); }, [&] { return sweep_json(result); },
           [&](ResultWriter& output) { write_sweep(result, output, writer_name()); }},
          *job_.out, job_.may_replace());
    const int code = job_.end();
    const SweepSummary summary = sweep_summary(result);
    job_.json ? print_json(sweep_json(result)) : print(summary.text);
    for (const std::string& remark : summary.remarks)
      job_.json ? note("kvscope: {}", remark) : print("{}\n", remark);
    return code;
  }

 private:
  void check_usage() const {
    if (traces_.empty()) throw UsageError("TRACE is missing");
    if (!replay_.has_selectors())
      throw UsageError("--selector is missing: expected at least one method");
    job_.check();
    if (!drafts_.empty() && drafts_.size() != traces_.size()) {
      throw UsageError("--draft: expected one for each trace, found {} for {}", drafts_.size(),
                       traces_.size());
    }
    job_.check_table();
  }

  std::vector<SweepTrace> make_traces() const {
    std::vector<SweepTrace> traces;
    for (std::size_t i = 0; i < traces_.size(); ++i) {
      const auto opener = [](const fs::path& file) {
        return [file]() -> std::unique_ptr<TraceSource> {
          return std::make_unique<TraceFile>(TraceFile::open(file, {}));
        };
      };
      SweepTrace trace;
      trace.name = name_of_trace(i);
      trace.open = opener(traces_[i]);
      if (!drafts_.empty()) trace.open_draft = opener(drafts_[i]);
      traces.push_back(std::move(trace));
    }
    return traces;
  }

  /// The file's name without folder; the whole path where two files are called alike.
  std::string name_of_trace(std::size_t i) const {
    const auto same = std::ranges::count_if(
        traces_, [&](const fs::path& file) { return file.filename() == traces_[i].filename(); });
    return same == 1 ? traces_[i].filename().string() : traces_[i].string();
  }

  /// False: "all" leaves out methods that need it. A file that cannot be opened is a matter of its
  /// items.
  bool all_traces(const std::function<bool(const TraceInfo&)>& have) const {
    const std::vector<std::string> lists = replay_.selector_lists();
    const bool may_say_all = std::ranges::any_of(
        lists, [](const std::string& list) { return list.find("all") != std::string::npos; });
    if (!may_say_all) return true;  // no file is opened for a question that nobody asks
    return std::ranges::all_of(traces_, [&](const fs::path& file) {
      try {
        return have(TraceFile::open(file, {}).info());
      } catch (const Error&) {
        return true;
      }
    });
  }

  SweepOptions make_options() const {
    SweepOptions options;
    MethodNeeds needs{replay_.phase(), !drafts_.empty(), calibration_.has_value()};
    needs.has_rotation =
        all_traces([](const TraceInfo& info) { return rotations_of(info) != nullptr; });
    needs.has_like_layers =
        all_traces([&](const TraceInfo& info) { return has_like_layers(info, replay_.layers()); });
    MethodList methods = methods_of(replay_.selector_lists(), needs);
    options.selectors = std::move(methods.methods);
    options.left_out = std::move(methods.left_out);
    options.match = as_usage([&] { return parse_matches(match_); });
    options.with_ceiling = !no_ceiling_;
    options.budgets = replay_.budgets();
    options.replay = replay_.replay();
    options.layers = replay_.layers();
    options.n_resamples = resamples_;
    options.seed = seed_;
    if (hardware_) options.hardware = find_hardware(*hardware_);
    return options;
  }

  std::vector<fs::path> traces_;
  std::vector<fs::path> drafts_;
  std::optional<fs::path> calibration_;
  ReplayArguments replay_;
  std::vector<std::string> match_;
  bool no_ceiling_ = false;
  std::optional<std::string> hardware_;
  Index resamples_ = 200;
  Index seed_ = 0;
  std::optional<fs::path> config_;
  RunJob job_;
};

}  // namespace

KVSCOPE_COMMAND(310, SweepCommand)

}  // namespace kvscope::cli
