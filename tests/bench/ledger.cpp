// The ledger: published speeds beside what the cost model predicts for their settings, without
// tuning per row, and the model's error, from which analysis/cost/prediction_error.hpp has its
// numbers.
//
//   bench_ledger tests/bench/ledger.json
//
// A row's SETTING is what its source says (or what is assumed, and said). Its ROLE: "predicts"; or
// "calibrates", where a constant of a profile was taken from this very row, so that its error says
// nothing; or "bound", where the published time is an upper limit (research code); or "untold",
// where the source names too little for a prediction; or "variant": the figure of another row under
// another assumption, which does not count a second time. A row that predicts is in one GROUP,
// since errors of different groups say different things: "calibration", of a source from which
// another row gave a constant; "stated", its source names every setting; "assumed", it does not
// (the note says what is assumed); "own", measured with this program's kernels.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/base/statistics.hpp"
#include "analysis/cost/predict.hpp"
#include "analysis/cost/prediction_error.hpp"
#include "core/base/enum_names.hpp"
#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope {

namespace {

/// decode: `queries` queries at the end of the context. prefill: all of it in one call. chunks: the
/// same in calls of `chunk` queries, each keeping its own keys.
enum class LedgerMode { decode, prefill, chunks };

struct LedgerSetting {
  LedgerMode mode = LedgerMode::decode;
  double n_q = 32, n_kv = 8, d_head = 128;
  double context = 32768;  // tokens
  double queries = 1;      // decode
  double chunk = 128;      // chunks
  double batch = 1;
  double kv_bytes = 2;
  bool causal = true;
  std::string kernel;  // of HardwareProfile::kernels, for dense attention; empty: the profile's
  double layers = 1;   // attention layers
  double dense_layers = 0;   // of them: left dense
  double anchor_layers = 0;  // of them: dense, and scored and ranked for the others
  double keys = 0;           // that a query's list holds; 0: see share
  double share = 1;          // of the keys that a query sees
  double run = 1;            // adjacent keys
  double rows = 0;       // query rows that share what is loaded; 0: all of a KV head's in the call
  double list_rows = 0;  // queries of a list; 0: all of the call
  double score_flops = 0;  // per query head, query and key
  double score_bytes = 0;  // per KV head and key, in elements of two bytes
  double ranked = 0;       // scores per KV head, list and key
  double parameters = 0;   // of the model; 0: attention alone
  double weight_bits = 16;
};

struct LedgerRow {
  std::string id;
  std::string source;    // who published it, and where
  std::string figure;    // what was published, in words
  std::string hardware;  // of a profile; empty: untold
  std::string quantity;  // see quantity_of
  std::string role;
  std::string group;  // of a row that predicts; else empty
  double published = 0.0;
  std::string unit;
  std::string note;  // what is assumed, or why nothing is predicted
  LedgerSetting setting;
};

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kGroups = {
    {{"calibration", "same source as a calibration"},
     {"stated", "settings stated"},
     {"assumed", "settings assumed"},
     {"own", "own measurements"}}};

/// The group of a row that predicts. calibrating: the sources of rows that gave a constant.
std::string_view group_of(const LedgerRow& row, const std::set<std::string>& calibrating) {
  if (row.source.starts_with("kvscope,")) return "own";
  if (calibrating.contains(row.source)) return "calibration";
  return row.note.find("assumed") == std::string::npos ? "stated" : "assumed";
}

/// The numbers of a setting by name, for files and for turning one of them.
const std::vector<std::pair<std::string, double LedgerSetting::*>>& setting_numbers() {
  using S = LedgerSetting;
  static const std::vector<std::pair<std::string, double S::*>> kNumbers = {
      {"n_q", &S::n_q},
      {"n_kv", &S::n_kv},
      {"d_head", &S::d_head},
      {"context", &S::context},
      {"queries", &S::queries},
      {"chunk", &S::chunk},
      {"batch", &S::batch},
      {"kv_bytes", &S::kv_bytes},
      {"layers", &S::layers},
      {"dense_layers", &S::dense_layers},
      {"anchor_layers", &S::anchor_layers},
      {"keys", &S::keys},
      {"share", &S::share},
      {"run", &S::run},
      {"rows", &S::rows},
      {"list_rows", &S::list_rows},
      {"score_flops", &S::score_flops},
      {"score_bytes", &S::score_bytes},
      {"ranked", &S::ranked},
      {"parameters", &S::parameters},
      {"weight_bits", &S::weight_bits}};
  return kNumbers;
}

LedgerSetting setting_of(const JsonObject& object) {
  LedgerSetting setting;
  const std::string mode = object.string("mode");
  const auto& words = EnumNames<LedgerMode>::value;
  const auto at = std::ranges::find(words, mode);
  if (at == words.end()) object.refuse("mode", "decode, prefill or chunks");
  setting.mode = static_cast<LedgerMode>(at - words.begin());
  setting.causal = object.boolean_or("causal", true);
  setting.kernel = object.string_if("kernel").value_or("");
  for (const auto& [name, member] : setting_numbers())
    setting.*member = object.number_or(name, 0.0, 1e15, setting.*member);
  for (const auto& [key, value] : object.value().items()) {
    const auto is_known = [&name = key](const auto& number) { return number.first == name; };
    if (key != "mode" && key != "causal" && key != "kernel" &&
        std::ranges::none_of(setting_numbers(), is_known))
      object.refuse(key, "a name of a ledger's setting");
  }
  return setting;
}

/// Queries and keys of the calls of a setting.
std::vector<CallShape> calls_of(const LedgerSetting& setting) {
  CallShape shape{setting.n_q, setting.n_kv, setting.d_head, setting.queries, setting.context};
  if (setting.mode == LedgerMode::decode) return {shape};
  if (setting.mode == LedgerMode::prefill) {
    shape.n_tok = setting.context;
    return {shape};
  }
  std::vector<CallShape> calls;
  for (double end = setting.chunk; end <= setting.context; end += setting.chunk) {
    shape.n_tok = setting.chunk;
    shape.n_ctx = end;
    calls.push_back(shape);
  }
  return calls;
}

LayerWork dense_call(const LedgerSetting& setting, const CallShape& shape) {
  LayerWork work = dense_work(shape);
  if (!setting.causal) work.attend.pairs = shape.n_q * shape.n_tok * shape.n_ctx;
  return work;
}

/// Scoring and ranking, without attending.
LayerWork score_call(const LedgerSetting& setting, const CallShape& shape) {
  LayerWork work = dense_call(setting, shape);
  const double pairs = work.attend.pairs / shape.n_q;  // of one head
  work.score_flops = setting.score_flops * work.attend.pairs;
  work.score_bytes = setting.score_bytes * shape.n_ctx * shape.n_kv;
  const double list_rows = setting.list_rows > 0.0 ? setting.list_rows : shape.n_tok;
  work.ranked = setting.ranked * shape.n_kv * pairs / list_rows;
  work.is_dense = false;
  work.attend = {};
  return work;
}

LayerWork sparse_call(const LedgerSetting& setting, const CallShape& shape) {
  LayerWork work = score_call(setting, shape);
  const AttendWork dense = dense_call(setting, shape).attend;
  // Kept beside the list.
  const double own = setting.mode == LedgerMode::chunks ? shape.n_tok : 0.0;
  const double past = shape.n_ctx - own;
  if (setting.mode == LedgerMode::prefill) {  // each query sees what is before it
    const double n = shape.n_ctx;
    const double limit = std::min(setting.keys, n);
    const double pairs = setting.keys > 0.0 ? limit * (limit + 1.0) / 2.0 + (n - limit) * limit
                                            : setting.share * n * (n + 1.0) / 2.0;
    work.attend.pairs = shape.n_q * pairs;
    work.attend.keys = shape.n_kv * n;
  } else {
    const double kept = setting.keys > 0.0 ? std::min(setting.keys, past) : setting.share * past;
    work.attend.pairs = shape.n_q * (shape.n_tok * kept + own * (own + 1.0) / 2.0);
    work.attend.keys = shape.n_kv * (kept + own);
  }
  work.attend.pairs = std::min(work.attend.pairs, dense.pairs);
  work.attend.runs = std::max(work.attend.keys / setting.run, shape.n_kv);
  work.attend.rows = setting.rows > 0.0 ? setting.rows : shape.n_tok * shape.group();
  return work;
}

struct Seconds {
  double dense = 0.0;  // attention of all layers
  double sparse = 0.0;
  double dense_attend = 0.0;  // the kernels of attending alone, of one layer
  double sparse_attend = 0.0;
  double dense_flops = 0.0;  // of one layer
  double sparse_flops = 0.0;
  double dense_bytes = 0.0;
  double rest = 0.0;  // of the model
};

Seconds predict_seconds(const LedgerSetting& setting, const HardwareProfile& hardware) {
  CostSetting how{setting.batch, setting.kv_bytes, {}};
  if (!setting.kernel.empty()) {
    const auto kernel = hardware.kernels.find(setting.kernel);
    if (kernel == hardware.kernels.end())
      throw ConfigError("the profile {} has no kernel \"{}\"", hardware.name, setting.kernel);
    how.attend = kernel->second.value;
  }
  const double chosen = setting.layers - setting.dense_layers - setting.anchor_layers;
  Seconds out;
  for (const CallShape& shape : calls_of(setting)) {
    const LayerWork dense = dense_call(setting, shape);
    const LayerWork sparse = sparse_call(setting, shape);
    const double dense_seconds = predict_layer(dense, hardware, how).total();
    const StageTimes sparse_times = predict_layer(sparse, hardware, how);
    const double anchor =
        setting.anchor_layers > 0.0
            ? dense_seconds + predict_layer(score_call(setting, shape), hardware, how).total()
            : 0.0;
    // an anchor's scores serve the others
    const double other =
        setting.anchor_layers > 0.0 ? sparse_times.of(CostStage::attend) : sparse_times.total();
    out.dense += setting.layers * dense_seconds;
    out.sparse +=
        setting.dense_layers * dense_seconds + setting.anchor_layers * anchor + chosen * other;
    out.dense_attend += dense_seconds;
    out.sparse_attend += sparse_times.of(CostStage::attend);
    const double per_pair = 4.0 * shape.d_head * setting.batch;
    out.dense_flops += per_pair * dense.attend.pairs;
    out.sparse_flops += per_pair * sparse.attend.pairs;
    out.dense_bytes += 2.0 * shape.d_head * setting.kv_bytes * setting.batch * dense.attend.keys;
    if (setting.parameters > 0.0) {
      out.rest +=
          predict_rest(rest_of_model(setting.parameters, setting.layers, setting.weight_bits),
                       shape.n_tok, hardware, how);
    }
  }
  return out;
}

double quantity_of(const LedgerSetting& setting, std::string_view quantity,
                   const HardwareProfile& hardware) {
  const Seconds s = predict_seconds(setting, hardware);
  if (quantity == "dense_ms") return 1e3 * s.dense;
  if (quantity == "sparse_ms") return 1e3 * s.sparse;
  if (quantity == "dense_tflops") return 1e-12 * s.dense_flops / s.dense_attend;
  if (quantity == "sparse_tflops") return 1e-12 * s.sparse_flops / s.sparse_attend;
  if (quantity == "dense_gbs") return 1e-9 * s.dense_bytes / s.dense_attend;
  if (quantity == "attention_speedup") return s.dense / s.sparse;
  if (quantity == "dense_tokens") return setting.batch * setting.queries / (s.rest + s.dense);
  if (quantity == "sparse_tokens") return setting.batch * setting.queries / (s.rest + s.sparse);
  if (quantity == "model_speedup") return (s.rest + s.dense) / (s.rest + s.sparse);
  throw ConfigError("the ledger has no quantity \"{}\"", quantity);
}

std::vector<LedgerRow> parse_ledger(std::string_view text, const std::string& where) {
  const nlohmann::json json = parse_json(text, where);
  const JsonObject top(json, where);
  std::vector<LedgerRow> rows;
  std::set<std::string> calibrating;
  std::size_t index = 0;
  for (const auto& one : top.list("rows")) {
    const JsonObject object(one, where, fmt::format("rows[{}].", index++));
    LedgerRow row;
    row.id = object.string("id");
    row.source = object.string("source");
    row.figure = object.string("figure");
    row.role = object.string("role");
    row.published = object.number("published", 1e-9, 1e15);
    row.unit = object.string_if("unit").value_or("");
    row.note = object.string_if("note").value_or("");
    if (row.role != "predicts" && row.role != "calibrates" && row.role != "bound" &&
        row.role != "untold" && row.role != "variant")
      object.refuse("role", "predicts, calibrates, bound, untold or variant");
    if (row.role == "predicts") row.group = object.string("group");
    if (row.role == "calibrates") calibrating.insert(row.source);
    if (row.source.empty()) object.refuse("source", "who published the figure");
    if (row.role == "untold") {
      if (row.note.empty()) object.refuse("note", "why nothing is predicted");
    } else {
      row.hardware = object.string("hardware");
      row.quantity = object.string("quantity");
      row.setting = setting_of(object.object("setting"));
    }
    rows.push_back(std::move(row));
  }
  for (const LedgerRow& row : rows) {
    if (row.role == "predicts" && row.group != group_of(row, calibrating))
      throw FormatError("{}: row {} is of group \"{}\": expected {}", where, row.id, row.group,
                        group_of(row, calibrating));
  }
  return rows;
}

ErrorOf error_of(const LedgerRow& row) {
  if (row.quantity == "attention_speedup") return ErrorOf::attention;
  return row.quantity == "model_speedup" ? ErrorOf::model : ErrorOf::time;
}

void print_errors(const std::vector<double>& errors, std::string_view title) {
  fmt::print("{:<30} {:>3} rows, median error {:.1f} %, within 20 %: {}\n", title, errors.size(),
             100.0 * quantile(errors, 0.5),
             std::ranges::count_if(errors, [](double e) { return e <= 0.2; }));
}

/// The numbers of prediction_error.hpp.
void print_quantiles(const std::vector<double>& ratios, std::string_view what) {
  const auto n = static_cast<double>(ratios.size());
  const auto at = [&](double chance) {  // row number chance (n + 1) of 1 to n
    return quantile(ratios, std::clamp((chance * (n + 1.0) - 1.0) / (n - 1.0), 0.0, 1.0));
  };
  fmt::print("{:<10} {{{}, {}, {}}}\n", what, ratios.size(), at(0.1), at(0.9));
}

void print_ledger(const std::vector<LedgerRow>& rows) {
  std::vector<double> all;
  std::map<std::string, std::vector<double>, std::less<>> by_group;
  std::array<std::vector<double>, 3> ratios;
  for (const LedgerRow& row : rows) {
    if (row.role == "untold") {
      fmt::print("{:<34} untold: {}\n", row.id, row.note);
      continue;
    }
    const double predicted = quantity_of(row.setting, row.quantity, find_hardware(row.hardware));
    const double error = predicted / row.published - 1.0;
    fmt::print("{:<34} {:<12} published {:.4g}{}, predicted {:.4g}, {:+.1f} % {}\n", row.id,
               row.hardware, row.published, row.unit, predicted, 100.0 * error,
               row.role == "predicts" ? row.group : row.role);
    if (row.role != "predicts") continue;
    all.push_back(std::abs(error));
    by_group[row.group].push_back(std::abs(error));
    if (row.group == "calibration") continue;
    const ErrorOf what = error_of(row);
    const bool is_rate = what == ErrorOf::time && !row.quantity.ends_with("_ms");
    ratios[static_cast<std::size_t>(what)].push_back(is_rate ? predicted / row.published
                                                             : row.published / predicted);
  }
  print_errors(all, "all rows that predict");
  for (const auto& [word, title] : kGroups) print_errors(by_group[std::string(word)], title);
  for (const auto& [what, name] :
       {std::pair(ErrorOf::attention, "attention"), std::pair(ErrorOf::model, "model"),
        std::pair(ErrorOf::time, "time")})
    print_quantiles(ratios[static_cast<std::size_t>(what)], name);
}

}  // namespace

}  // namespace kvscope

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: bench_ledger tests/bench/ledger.json\n");
    return 2;
  }
  try {
    constexpr std::size_t kMostBytes = std::size_t{1} << 20;
    kvscope::print_ledger(
        kvscope::parse_ledger(kvscope::read_whole_file(argv[1], kMostBytes), argv[1]));
  } catch (const kvscope::Error& error) {
    fmt::print(stderr, "bench_ledger: {}\n", error.what());
    return 3;
  }
  return 0;
}
