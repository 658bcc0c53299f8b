#include "analysis/cli/runs/cost_shape.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "analysis/base/replay_pairs.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/text_table.hpp"
#include "analysis/cli/models/model_source.hpp"
#include "analysis/cli/runs/all_methods.hpp"
#include "analysis/cli/runs/counts.hpp"
#include "analysis/cost/any_shape.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostShapeBytes = 16 << 20;
constexpr std::size_t kMostListBytes = std::size_t{256} << 20;
constexpr std::size_t kMostShapeCells = 10'000;

/// A model's config.json, and what the answers need of it.
struct ShapeOfModel {
  ModelConfig config;  // of the layers that attend
  CostModel model;
  std::string text;
};

ShapeOfModel read_shape(const std::string& word, double weight_bits) {
  ShapeOfModel shape;
  std::string name;
  const fs::path file(word);
  std::string where = word;
  if (file.extension() == ".json") {
    shape.text = read_whole_file(file, kMostShapeBytes);
    const fs::path folder = fs::absolute(file).parent_path();
    name = file.filename() == "config.json" ? model_name(folder) : file.stem().string();
  } else {
    const fs::path dir = model_dir(word);
    shape.text = config_json_of(dir);
    name = model_name(dir);
    where = dir.string();
  }
  try {
    if (auto any = any_shape(shape.text, where, name, weight_bits)) {
      shape.config = std::move(any->config);
      shape.model = std::move(any->model);
    } else {
      shape.config = parse_model_config(shape.text, where);
      shape.model = cost_model(shape.config, name, weight_bits);
    }
  } catch (const ConfigError& error) {
    throw FormatError(error.what());
  }
  return shape;
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
  const std::string question = row.at("question").get<std::string>();
  const auto with_ends = [&](const std::string& name) {
    const auto part = [&](const char* end) {
      return number_text(row.at(name + end).get<double>(), 3);
    };
    return fmt::format("{} ({} to {})", part(""), part("_low"), part("_high"));
  };
  if (question == "first-token") return with_ends("first_token_s");
  if (question == "tokens-per-second") return with_ends("tokens_per_s");
  return with_ends("predicted_speedup");
}

std::string shape_unit(const std::string& question) {
  if (question == "first-token") return "seconds to the first token";
  return question == "tokens-per-second" ? "tokens a second" : "speedup of attention";
}

std::string shape_method(const Json& row) {
  std::string text = row.at("selector").get<std::string>();
  if (row.at("budget").is_number()) {
    text += fmt::format(" {}={}", row.at("budget_kind").get<std::string>(),
                        number_text(row.at("budget").get<double>(), 9));
  }
  return text;
}

/// The map of one method on one card; rows by batch, then context.
std::string shape_map(const std::vector<Json>& rows) {
  std::vector<std::string> header = {"context"};
  std::vector<double> contexts;
  for (const Json& row : rows) {
    const std::string batch =
        fmt::format("batch {}", number_text(row.at("batch").get<double>(), 7));
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

}  // namespace

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
  const ShapeOfModel shape = read_shape(*shape_, given.weight_bits);
  const ModelConfig& config = shape.config;
  if (config.quantization.kind != QuantizationConfig::Kind::none && !options.given("weight-bits")) {
    note(
        "kvscope: config.json says that weights are stored by {}; computed with {} bits, "
        "--weight-bits says otherwise",
        config.quantization.method, given.weight_bits);
  }

  const MethodList methods = methods_of(lists, {phase, false, /*has_calibration=*/true});
  const PairPlan plan = plan_pairs(methods.methods, budgets, phase, std::nullopt, "cost");
  ListQuestion question{config, shape.text, plan.pairs, phase};
  const ReplayOptions calls = replay.replay();
  question.chunk = calls.calls.chunk;
  question.drafts = calls.calls.drafts;
  question.dense_layers = calls.dense_layers;
  question.places = shape.model.places;
  if (like_)
    question.like = measured_lists(read_whole_file(*like_, kMostListBytes), like_->string());

  ShapeOptions asked;
  asked.hardware = given.hardware;
  asked.contexts = given.contexts.empty() ? shape_contexts(config) : given.contexts;
  std::ranges::sort(asked.contexts);
  asked.contexts.erase(std::unique(asked.contexts.begin(), asked.contexts.end()),
                       asked.contexts.end());
  asked.batches = given.batches;
  asked.kv_bytes = given.kv_bytes;
  asked.weight_bits = given.weight_bits;
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
  if (has_beyond) {
    text += fmt::format("+ beyond the {} tokens that config.json allows\n",
                        number_text(report.at("max_context").get<double>(), 9));
  }
  for (const Json& method : report.at("methods"))
    text += fmt::format("{}: {}\n", method.at("method").get<std::string>(),
                        method.at("lists").get<std::string>());
  const Json& errors = report.at("errors");
  const auto words = [&](const char* what, const char* name) {
    const Json& error = errors.at(what);
    return fmt::format("{} {:.2f} to {:.2f} ({} rows)", name, error.at("low").get<double>(),
                       error.at("high").get<double>(), error.at("rows").get<int>());
  };
  text += fmt::format(
      "Predicted, not measured. Ends: as the ledger has it, a measured figure lies in eight of ten "
      "cases between so many times the predicted one: {}, {}, {}.\n",
      words("attention_speedup", "speedups of attention"), words("model_speedup", "of a model"),
      words("time", "seconds"));
  return text;
}

}  // namespace kvscope::cli
