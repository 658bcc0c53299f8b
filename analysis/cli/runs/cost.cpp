// kvscope cost: from what a method selects on a recording, or would in a model's shape, to
// predicted time on a card.
#include "analysis/cost/trace_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "analysis/base/calibration_notes.hpp"
#include "analysis/base/replay_pairs.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/list_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cli/frame/text_table.hpp"
#include "analysis/cli/models/model_source.hpp"
#include "analysis/cli/runs/replay_arguments.hpp"
#include "analysis/cli/runs/run_job.hpp"
#include "analysis/cost/any_shape.hpp"
#include "analysis/cost/cost_work.hpp"
#include "analysis/cost/shape_cost.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/lists.hpp"
#include "core/base/read_files.hpp"
#include "core/base/version.hpp"
#include "core/base/whole_file.hpp"
#include "core/sim/replay_run.hpp"
#include "core/sim/rotations.hpp"
#include "core/trace/info.hpp"
#include "traces/reader.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostShapeBytes = 16 << 20;
constexpr std::size_t kMostListBytes = std::size_t{256} << 20;
constexpr std::size_t kMostShapeCells = 10'000;

AnyShape read_shape(const std::string& word, double weight_bits) {
  std::string text;
  std::string name;
  const fs::path file(word);
  std::string where = word;
  if (file.extension() == ".json") {
    text = read_whole_file(file, kMostShapeBytes);
    const fs::path folder = fs::absolute(file).parent_path();
    name = file.filename() == "config.json" ? model_name(folder) : file.stem().string();
  } else {
    const fs::path dir = model_dir(word);
    text = config_json_of(dir);
    name = model_name(dir);
    where = dir.string();
  }
  try {
    return any_shape(std::move(text), where, name, weight_bits);
  } catch (const ConfigError& error) {
    throw FormatError(error.what());
  }
}

/// 4k, 8k, ... as far as the model goes, at most a million.
std::vector<double> shape_contexts(const ModelConfig& config) {
  const double limit =
      config.max_positions > 0 ? static_cast<double>(config.max_positions) : 131072.0;
  std::vector<double> contexts;
  double n = 4096.0;
  while (n > limit && n > 256.0) n /= 2.0;
  for (; n <= std::min(limit, 1048576.0) || contexts.empty(); n *= 2.0) contexts.push_back(n);
  return contexts;
}

std::string shape_cell(const Json& row) {
  if (row.at("fits") == 0)
    return fmt::format("no room ({:.0f} cards)", std::ceil(row.at("memory_share").get<double>()));
  const char* const name = row.at("question") == "first-token"         ? "first_token_s"
                           : row.at("question") == "tokens-per-second" ? "tokens_per_s"
                                                                       : "predicted_speedup";
  return filled_in(fmt::format("{{{0}:3}} ({{{0}_low:3}} to {{{0}_high:3}})", name), row);
}

std::string shape_unit(const std::string& question) {
  if (question == "first-token") return "seconds to the first token";
  return question == "tokens-per-second" ? "tokens a second" : "speedup of attention";
}

std::string shape_method(const Json& row) {
  const bool has_budget = row.at("budget").is_number();
  return filled_in(has_budget ? "{selector} {budget_kind}={budget:9}" : "{selector}", row);
}

/// The map of one method on one card; rows by batch, then context.
std::string shape_map(const std::vector<Json>& rows) {
  std::vector<std::string> header = {"context"};
  std::vector<double> contexts;
  for (const Json& row : rows) {
    const std::string batch = filled_in("batch {batch}", row);
    if (std::ranges::find(header, batch) == header.end()) header.push_back(batch);
    if (header.size() == 2) contexts.push_back(row.at("context").get<double>());
  }
  TextTable table(header);
  for (std::size_t c = 0; c < contexts.size(); ++c) {
    std::vector<std::string> cells = {context_text(contexts[c]) +
                                      (rows[c].at("beyond_limit") == 1 ? "+" : "")};
    for (std::size_t b = 0; b + 1 < header.size(); ++b)
      cells.push_back(shape_cell(rows[b * contexts.size() + c]));
    table.add_row(std::move(cells));
  }
  return table.text();
}

/// The options that --shape has to itself.
class CostShape {
 public:
  void declare(OptionSet& options);
  bool is_used() const { return shape_.has_value(); }
  /// given: cards, batches, contexts, formats. Writes what was left out to standard error. Throws
  /// UsageError, and what reading a config.json and lists_of_shape throw.
  Json report(const OptionSet& options, const ReplayArguments& replay, const CostOptions& given,
              const WorkOptions& work) const;

 private:
  Phase phase_of(const OptionSet& options, const ReplayArguments& replay) const;
  std::vector<Budget> budgets_of_run(const ReplayArguments& replay) const;

  std::optional<std::string> shape_;
  std::optional<CostQuestion> question_;
  std::string keys_;
  std::optional<fs::path> like_;
};

void CostShape::declare(OptionSet& options) {
  options.add("shape", "MODEL",
              "cost without a recording: a config.json, or a model as --model names it (folder, "
              "ORG/NAME in the hub's cache, GGUF file), of which only config.json is read",
              shape_);
  options.add("question", "WORD",
              "with --shape: what is asked [pays-off; first-token is of prefill, "
              "tokens-per-second of decode]",
              question_);
  options.add("keys", "LIST", "with --shape: budgets in tokens, short for --budget [1024]", keys_);
  options.add("like", "FILE",
              "with --shape: sizes of lists from a report of kvscope cost TRACE --out, of another "
              "model too [the method's own rule]",
              like_);
  options.need({"question", "keys", "like"}, {"shape"});
  options.exclude_each({"shape"},
                       {"draft", "calibration", "steps", "rows-per-chunk", "layers", "heads"});
  options.exclude({"keys", "budget"});
}

Phase CostShape::phase_of(const OptionSet& options, const ReplayArguments& replay) const {
  if (question_ == CostQuestion::tokens_per_second) {
    if (options.given("phase") && replay.phase() != Phase::decode)
      throw UsageError("--question tokens-per-second: expected --phase decode, or none");
    return Phase::decode;
  }
  if (question_ == CostQuestion::first_token && replay.phase() != Phase::prefill)
    throw UsageError("--question first-token: expected --phase prefill, or none");
  return replay.phase();
}

std::vector<Budget> CostShape::budgets_of_run(const ReplayArguments& replay) const {
  if (replay.has_budgets()) return replay.budgets();
  std::vector<Budget> budgets;
  for (const Index n : counts_of(keys_.empty() ? "1024" : keys_, "keys"))
    budgets.push_back({Budget::Kind::tokens, static_cast<double>(n)});
  return budgets;
}

Json CostShape::report(const OptionSet& options, const ReplayArguments& replay,
                       const CostOptions& given, const WorkOptions& work) const {
  const Phase phase = phase_of(options, replay);
  std::vector<std::string> lists = replay.selector_lists();
  if (lists.empty()) lists = {phase == Phase::prefill ? "quoka" : "quest"};
  const std::vector<Budget> budgets = budgets_of_run(replay);
  const AnyShape shape = read_shape(*shape_, given.weight_bits);
  const ModelConfig& config = shape.config;
  if (config.quantization.kind != QuantizationConfig::Kind::none && !options.given("weight-bits")) {
    note(
        "kvscope: config.json says that weights are stored by {}; computed with {} bits, "
        "--weight-bits says otherwise",
        config.quantization.method, given.weight_bits);
  }

  const MethodList methods = methods_of(lists, {phase, false, /*has_calibration=*/true});
  const PairPlan plan = plan_pairs(methods.methods, budgets, {phase}, std::nullopt, "cost");
  ListQuestion question{config, shape.text, plan.pairs, phase};
  const ReplayOptions calls = replay.replay();
  question.chunk = calls.calls.chunk;
  question.drafts = calls.calls.drafts;
  question.dense_layers = calls.dense_layers;
  question.places = shape.model.places;
  if (like_)
    question.like = measured_lists(read_whole_file(*like_, kMostListBytes), like_->string());

  ShapeOptions asked{given};
  if (asked.contexts.empty()) asked.contexts = shape_contexts(config);
  std::ranges::sort(asked.contexts);
  asked.contexts.erase(std::unique(asked.contexts.begin(), asked.contexts.end()),
                       asked.contexts.end());
  asked.phase = phase;
  asked.question = question_.value_or(CostQuestion::pays_off);
  asked.max_context = static_cast<double>(config.max_positions);
  const double n_tok = phase == Phase::prefill  ? static_cast<double>(question.chunk)
                       : phase == Phase::decode ? 1.0
                                                : static_cast<double>(question.drafts);
  if (question.chunk < 1 || question.drafts < 1)
    throw UsageError("--chunk and --drafts: expected at least 1");
  if (asked.contexts.front() < n_tok) {
    throw UsageError("--context: expected at least the {} queries of a call, found {}", n_tok,
                     asked.contexts.front());
  }
  const std::size_t n_cells =
      asked.contexts.size() * asked.batches.size() * asked.hardware.size() * plan.pairs.size();
  if (n_cells > kMostShapeCells)
    throw UsageError("--context and --batch: {} cells are asked for, expected at most {}", n_cells,
                     kMostShapeCells);

  Working run(work);
  const ShapeListsOfAll of_all = lists_of_shape(question, run.pool, run.progress, run.stop);
  for (const auto* sentences : {&methods.left_out, &plan.skipped, &of_all.left_out}) {
    for (const std::string& sentence : *sentences) note("kvscope: left out: {}", sentence);
  }
  return shape_cost_report(shape.model, of_all.methods, asked);
}

/// The answers, the table over context and batch, and what it rests on.
std::string describe_shape_costs(const Json& report) {
  std::string text = report.at("layers").get<std::string>();
  if (!text.empty()) text += "\n";
  for (const Json& answer : report.at("answers")) text += answer.get<std::string>() + "\n";
  const Json& rows = report.at("rows");
  bool has_beyond = false;
  bool has_no_room = false;
  for (std::size_t begin = 0; begin < rows.size();) {
    const auto is_same = [&](const Json& row) {
      return row.at("hardware") == rows[begin].at("hardware") &&
             shape_method(row) == shape_method(rows[begin]);
    };
    std::vector<Json> map;
    std::size_t end = begin;
    for (; end < rows.size() && is_same(rows[end]); ++end) {
      map.push_back(rows[end]);
      has_beyond = has_beyond || rows[end].at("beyond_limit") == 1;
      has_no_room = has_no_room || rows[end].at("fits") == 0;
    }
    text += fmt::format("\n{}, {}, {}:\n{}", rows[begin].at("hardware").get<std::string>(),
                        shape_method(rows[begin]),
                        shape_unit(report.at("question").get<std::string>()), shape_map(map));
    begin = end;
  }
  text += "\n";
  if (has_no_room) text += "no room: for weights and cache on one card, but on so many\n";
  if (has_beyond)
    text += filled_in("+ beyond the {max_context} tokens that config.json allows\n", report);
  for (const Json& method : report.at("methods")) text += filled_in("{method}: {lists}\n", method);
  const auto words = [&](const char* what, const std::string& name) {
    return name + filled_in(" {low:.2f} to {high:.2f} ({rows} rows)", report.at("errors").at(what));
  };
  text += fmt::format(
      "Predicted, not measured. In eight of ten published cases the measured figure lay between so "
      "many times the predicted one: {}, {}, {}.\n",
      words("attention_speedup", "speedups of attention"), words("model_speedup", "of a model"),
      words("time", "seconds"));
  return text;
}

std::string describe_costs(const Json& report) {
  Json rows = report.at("rows");
  std::string notes;
  bool has_scaled = false;
  for (Json& row : rows) {
    const bool is_scaled = row.at("extrapolated") == 1;
    has_scaled = has_scaled || is_scaled;
    row["context"] = filled_in("{context}", row) + (is_scaled ? "*" : "");
    const std::string line = row.at("note").get<std::string>() + "\n";
    if (line.size() > 1 && notes.find(line) == std::string::npos) notes += "left out: " + line;
  }
  return fmt::format(
      "predicted microseconds of a forward call in one layer, mean over layers without a window "
      "and calls of the largest size; "
      "pays from: context from which on the method is not slower than dense attention; model: "
      "speedup of the whole call\n{}{}{}",
      filled_table(rows, {{"hardware", "{hardware}"},
                          {"selector", "{selector}"},
                          {"budget", "{budget_kind}={budget:9}?"},
                          {"batch", "{batch}"},
                          {"context", "{context}"},
                          {"append", "{append_us:3}"},
                          {"score", "{score_us:3}"},
                          {"top-k", "{topk_us:3}"},
                          {"attend", "{attend_us:3}"},
                          {"estimate", "{estimate_us:3}"},
                          {"us", "{predicted_us:3}"},
                          {"dense us", "{predicted_dense_us:3}"},
                          {"speedup", "{predicted_speedup:3}"},
                          {"pays from", "{break_even:7}"},
                          {"model", "{call_speedup:3}"}}),
      has_scaled
          ? "* scaled from the measured lists: a budget in tokens stays, everything else grows "
            "with the context\n"
          : "",
      notes);
}

class CostCommand final : public Command {
 public:
  CommandCard card() const override {
    return {
        "cost",
        "predicted time on a processor, from measured lists",
        "Replays the methods on a recording and predicts, from the keys that they really select "
        "(union per KV head, runs of adjacent keys, rows of a list), what a forward call would "
        "take on each card: append, score, top-k, gather and attend, estimate; each a launch "
        "and the larger of FLOPs over rate and bytes over bandwidth. The formula and the source "
        "of every constant are in analysis/cost/README.md. --shape asks the same of a model of "
        "which there is no recording, and answers in one sentence with an interval: from which "
        "context a method pays off, how much faster it is, when the first token comes, how many "
        "tokens a second.",
        {{"kvscope cost trace.h5 --selector quest,quoka --budget 256 --hardware h100-sxm,rtx-4090",
          "two methods on two cards at the recording's own length"},
         {"kvscope cost trace.h5 --phase decode --selector quest --budget 1024 --hardware a100-80 "
          "--context 32768,131072 --batch 1,16 --out cost.json",
          "scaled to longer contexts; kvscope figure cost draws it"},
         {"kvscope cost --shape org/model --hardware h100-sxm --question pays-off",
          "without a recording: from which context on quoka with 1024 keys is faster"},
         {"kvscope cost --shape config.json --hardware h200 --selector quest --keys 2048 --context "
          "4k:1M --batch 1,16,64 --question tokens-per-second --out shape.json",
          "a map over context and batch; kvscope figure cost-map draws it"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("TRACE", "a recorded trace", trace_, /*required=*/false)
        .of({FileKind::trace});
    replay_.declare(options);
    options.add("hardware", "LIST",
                fmt::format("profiles: {}, or files (of tests/bench's bench_machine)",
                            fmt::join(hardware_names(), ", ")),
                hardware_);
    options.add("batch", "LIST", "sequences side by side, each with its own cache", batch_);
    options.add(
        "context", "LIST",
        "more context lengths, to which the measured lists are scaled, as 32768,1M or 4k:1M "
        "(doubling); with --shape all of them [4k to the model's limit]",
        context_);
    options.add("kv-dtype", "WORD",
                "of stored keys and values: fp8, bf16 or f32 [f32 on a cpu, else bf16]", kv_dtype_);
    options.add("weight-bits", "N", "of a stored weight, for the whole call", weight_bits_,
                in(1, 64));
    shape_.declare(options);
    options.add("draft", "TRACE", "the draft model's trace over the same tokens", draft_);
    options.add("calibration", "TRACE",
                "the same model's trace over another text, as in kvscope sweep", calibration_);
    options.add("out", "FILE", "write the report as JSON", job_.out).short_name = 'o';
    options.flag("overwrite", "replace an existing file", job_.overwrite);
    job_.declare_work(options);
    options.exclude({"TRACE", "shape"});
    options.exclude_each({"shape"}, {"store", "engine", "worker"},
                         ": what is of no recording has no items");
  }

  int run(const OptionSet& options, const std::string& typed) override {
    job_.check();
    check_usage();
    // The report of a recording says the same whoever did its items. What it is of comes first:
    // by it, a file is known as one of kvscope.
    const std::string command_line =
        trace_ ? options.command_line(name(), kOptionsOfNoNumber) : typed;
    Json report = {{"kind", "cost"}, {"version", writer_name()}, {"command_line", command_line}};
    if (shape_.is_used()) {
      if (job_.out) check_new_output(*job_.out, job_.overwrite, FileKind::own_json);
      report.update(shape_.report(options, replay_, cost_options(), job_.work));
    } else {
      if (const std::optional<int> code = of_trace(options, report)) return *code;
    }
    if (job_.writes()) write_new_file(*job_.out, json_text(report, 1) + "\n", job_.may_replace());
    job_.end();
    if (job_.json) {
      print_json(report);
    } else {
      print(shape_.is_used() ? describe_shape_costs(report) : describe_costs(report));
    }
    return kOk;
  }

 private:
  static std::vector<std::string> split_list(const std::vector<std::string>& lists) {
    std::vector<std::string> words;
    for (const std::string& list : lists) {
      for (std::string& word : split_words(list, ',')) {
        if (!word.empty()) words.push_back(std::move(word));
      }
    }
    return words;
  }

  void check_usage() const {
    if (!trace_ && !shape_.is_used()) throw UsageError("TRACE is missing (or --shape)");
    if (trace_ && !replay_.has_selectors())
      throw UsageError("--selector is missing: expected at least one method");
    if (hardware_.empty()) {
      throw UsageError("--hardware is missing: expected some of {}, or a file",
                       fmt::join(hardware_names(), ", "));
    }
    if (job_.out) check_new_output(*job_.out, /*overwrite=*/true, FileKind::own_json);
  }

  CostOptions cost_options() const {
    CostOptions options;
    for (const std::string& name : split_list(hardware_))
      options.hardware.push_back(find_hardware(name));
    const auto batches = counts_of(batch_, "batch");
    options.batches.assign(batches.begin(), batches.end());
    const auto contexts = context_.empty() ? std::vector<Index>() : counts_of(context_, "context");
    options.contexts.assign(contexts.begin(), contexts.end());
    options.weight_bits = static_cast<double>(weight_bits_);
    if (!kv_dtype_) return options;
    if (*kv_dtype_ != "fp8" && *kv_dtype_ != "bf16" && *kv_dtype_ != "f32")
      throw UsageError("--kv-dtype: expected fp8, bf16 or f32, found \"{}\"", *kv_dtype_);
    options.kv_bytes = *kv_dtype_ == "fp8" ? 1.0 : *kv_dtype_ == "bf16" ? 2.0 : 4.0;
    return options;
  }

  /// What besides the replay decides the report.
  Json settings() const {
    Json json = {{"batch", batch_}, {"context", context_}, {"weight_bits", weight_bits_}};
    json["kv_dtype"] = or_null(kv_dtype_);
    for (const std::string& name : split_list(hardware_))
      json["hardware"].push_back(hardware_json(find_hardware(name)));
    return json;
  }

  /// Fills the report, or returns the exit code of a worker, which makes none.
  std::optional<int> of_trace(const OptionSet& given, Json& report) {
    const CostOptions options = cost_options();
    const TraceFile trace = TraceFile::open(*trace_, {});
    std::optional<TraceFile> draft;
    if (draft_) draft.emplace(TraceFile::open(*draft_, {}));
    std::optional<TraceFile> calibration;
    if (calibration_) calibration.emplace(TraceFile::open(*calibration_, {}));
    const MethodList methods =
        methods_of(replay_.selector_lists(),
                   {replay_.phase(), draft.has_value(), calibration.has_value(),
                    rotations_of(trace.info()) != nullptr,
                    /*has_projection=*/false, has_like_layers(trace.info(), replay_.layers())});
    const PairPlan plan = plan_pairs(
        methods.methods, replay_.budgets(), {replay_.phase()},
        draft ? std::nullopt : std::optional<std::string>(trace_->filename().string()), "cost");
    for (const auto* sentences : {&methods.left_out, &plan.skipped}) {
      for (const std::string& sentence : *sentences) note("kvscope: left out: {}", sentence);
    }
    const TraceInfo& info = trace.info();
    check_artifacts(methods.methods, info);
    job_.check_inputs();
    std::vector<Index> layers = replay_.layers();
    if (layers.empty()) layers = info.layers;
    CostReplay replay{trace, draft ? &*draft : nullptr, layers, plan.pairs, replay_.replay()};
    replay.options.only_costs = true;
    replay.options.calls = whole_periods(replay.options.calls, plan.pairs);
    replay.options.calibration = calibration ? &*calibration : nullptr;
    WorkCollector works(info);
    ThreadPool pool(job_.work.n_threads());
    const Work work = cost_work(replay, settings(), pool);
    report["config_hash"] = work.hash();
    if (job_.is_complete(report, {})) return kOk;
    if (const auto code = job_.finish(work, given, name())) return code;
    read_works(replay, work, job_.store(), works);
    report.update(trace_cost_report(info, layers, plan.pairs, works, replay_.phase(), options));
    report["trace"] = trace_->filename().string();
    return std::nullopt;
  }

  std::optional<fs::path> trace_;
  ReplayArguments replay_;
  std::vector<std::string> hardware_;
  std::string batch_ = "1";
  std::string context_;
  std::optional<std::string> kv_dtype_;
  Index weight_bits_ = 16;
  std::optional<fs::path> draft_;
  std::optional<fs::path> calibration_;
  CostShape shape_;
  RunJob job_;
};

}  // namespace

KVSCOPE_COMMAND(350, CostCommand)

}  // namespace kvscope::cli
