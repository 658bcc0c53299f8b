#include "analysis/cost/ledger.hpp"

#include <map>
#include <set>

#include "analysis/base/kit.hpp"
#include "analysis/cost/cost_data.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"

namespace kvscope {

namespace {

/// A headline within this is called consistent.
constexpr double kConsistent = 0.25;

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

Seconds predict_seconds(const LedgerSetting& setting, const HardwareProfile& hardware,
                        std::optional<double> attend) {
  CostSetting how{setting.batch, setting.kv_bytes, attend};
  if (!attend && !setting.kernel.empty()) {
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
                   const HardwareProfile& hardware, std::optional<double> attend) {
  const Seconds s = predict_seconds(setting, hardware, attend);
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

std::string headline_sentence(const LedgerRow& row, const HardwareProfile& hardware,
                              double predicted) {
  const double error = predicted / row.published - 1.0;
  const std::string begin = fmt::format("{}: published {}{}, predicted {}{} on {}", row.headline,
                                        number_text(row.published, 3), row.unit,
                                        number_text(predicted, 3), row.unit, hardware.title);
  if (std::abs(error) <= kConsistent) return begin + ": consistent.";
  std::vector<std::string> ways;
  for (const std::string& name : row.vary) {
    const auto needed = needed_value(row, name, hardware);
    if (!needed) continue;
    if (name == "attend") {
      ways.push_back(fmt::format("attention kernels at {:.1f} % of the peak instead of {:.0f} %",
                                 100.0 * *needed, 100.0 * hardware.attend.value));
    } else if (name == "share") {
      ways.push_back(fmt::format("{:.1f} % of the keys kept instead of {:.1f} %", 100.0 * *needed,
                                 100.0 * row.setting.share));
    } else {
      ways.push_back(
          fmt::format("{} = {}", name == "keys" ? "a budget" : name, number_text(*needed, 4)));
    }
  }
  if (ways.empty())
    return begin + ": not consistent, and no single one of the settings explains it.";
  return begin + fmt::format(": it would have to be {}, everything else as assumed.",
                             fmt::join(ways, ", or "));
}

}  // namespace

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
    row.headline = object.string_if("headline").value_or("");
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
    if (object.find("vary") != nullptr) {
      for (const auto& word : object.list("vary")) {
        if (!word.is_string()) object.refuse("vary", "a list of words");
        row.vary.push_back(word.get<std::string>());
      }
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

std::vector<LedgerRow> ledger_rows() {
  for (const CostData& data : cost_data()) {
    if (data.name == "ledger") return parse_ledger(data.text, "the built-in ledger");
  }
  throw ConfigError("the ledger was not built in");
}

double predict_quantity(const LedgerSetting& setting, std::string_view quantity,
                        const HardwareProfile& hardware) {
  return quantity_of(setting, quantity, hardware, std::nullopt);
}

std::optional<double> needed_value(const LedgerRow& row, const std::string& name,
                                   const HardwareProfile& hardware) {
  double low = 0.0;
  double high = 0.0;
  std::function<double(double)> at;
  if (name == "attend") {
    low = 1e-4, high = 1.0;
    at = [&](double x) { return quantity_of(row.setting, row.quantity, hardware, x); };
  } else {
    const auto found = std::ranges::find_if(
        setting_numbers(), [&](const auto& number) { return number.first == name; });
    if (found == setting_numbers().end()) throw ConfigError("the ledger cannot vary \"{}\"", name);
    const auto member = found->second;
    const bool is_share = name == "share";
    low = is_share ? 1e-4 : 1.0;
    high = is_share          ? 1.0
           : name == "batch" ? 4096.0
           : name == "keys"  ? row.setting.context
                             : 1 << 22;
    at = [&row, &hardware, member](double x) {
      LedgerSetting setting = row.setting;
      setting.*member = x;
      return quantity_of(setting, row.quantity, hardware, std::nullopt);
    };
    if (row.setting.mode == LedgerMode::chunks)
      low = std::max(low, name == "context" ? row.setting.chunk : low);
  }
  const double at_low = at(low) - row.published;
  const double at_high = at(high) - row.published;
  if (!(at_low * at_high <= 0.0)) return std::nullopt;
  for (int i = 0; i < 60 && high / low > 1.0 + 1e-6; ++i) {
    const double middle = std::sqrt(low * high);
    ((at(middle) - row.published) * at_low > 0.0 ? low : high) = middle;
  }
  return std::sqrt(low * high);
}

Json ledger_json(const LedgerRow& row) {
  Json json = {{"id", row.id},         {"source", row.source},
               {"figure", row.figure}, {"hardware", row.hardware},
               {"role", row.role},     {"group", row.group},
               {"predicted", nullptr}, {"published", row.published},
               {"error", nullptr},     {"unit", row.unit},
               {"note", row.note}};
  if (row.role == "untold") return json;
  const double predicted = predict_quantity(row.setting, row.quantity, find_hardware(row.hardware));
  json["predicted"] = predicted;
  json["error"] = predicted / row.published - 1.0;
  return json;
}

Json ledger_report() {
  Json rows = Json::array();
  Json headlines = Json::array();
  std::vector<double> errors;
  std::map<std::string, std::vector<double>, std::less<>> by_group;
  for (const LedgerRow& row : ledger_rows()) {
    Json json = ledger_json(row);
    if (row.role == "predicts") {
      errors.push_back(std::abs(json["error"].get<double>()));
      by_group[row.group].push_back(errors.back());
    }
    if (!row.headline.empty() && json["predicted"].is_number())
      headlines.push_back(
          headline_sentence(row, find_hardware(row.hardware), json["predicted"].get<double>()));
    rows.push_back(std::move(json));
  }
  const auto summary = [](const std::vector<double>& of) {
    return Json{
        {"predicted_rows", of.size()},
        {"median_error", quantile(of, 0.5)},
        {"within_20_percent", std::ranges::count_if(of, [](double e) { return e <= 0.2; })}};
  };
  Json groups = Json::array();
  for (const auto& [word, title] : kGroups) {
    Json group = {{"group", word}, {"title", title}};
    group.update(summary(by_group[std::string(word)]));
    groups.push_back(std::move(group));
  }
  Json report = {{"kind", "cost-ledger"}};
  report.update(summary(errors));
  report.update({{"headlines", headlines}, {"groups", groups}, {"rows", rows}});
  return report;
}

}  // namespace kvscope
