#include "core/model/adapter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/whole_file.hpp"
#include "core/model/gguf/gguf_checkpoint.hpp"
#include "core/model/model_stores.hpp"
#include "core/model/regex.hpp"

namespace kvscope {

namespace fs = std::filesystem;

namespace {

constexpr const char* kConfigFile = "adapter_config.json";
constexpr std::size_t kMaxAdapterBytes = 16 << 20;
constexpr std::int64_t kMaxRank = 1 << 16;
constexpr std::string_view kWayOut =
    "; in Python: AutoPeftModelForCausalLM.from_pretrained(FOLDER).merge_and_unload()"
    ".save_pretrained(OUT) writes the merged model";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string read_config(const fs::path& folder) {
  return read_regular_file(folder / kConfigFile, kMaxAdapterBytes);
}

// ---- settings

[[noreturn]] void refuse_setting(const JsonObject& config, const std::string& field,
                                 std::string_view expected) {
  throw ConfigError("{}: expected {}, found {}{}", config.name_of(field), expected,
                    describe(*config.find(field)), kWayOut);
}

// Nothing: absent, null, false, an empty list or object.
bool is_unset(const nlohmann::json* value) {
  return value == nullptr || *value == false ||
         ((value->is_object() || value->is_array()) && value->empty());
}

// Settings that change what a merged weight is, or when.
void refuse_other_methods(const JsonObject& config) {
  if (config.string_if("peft_type").value_or("LORA") != "LORA") {
    refuse_setting(config, "peft_type", "\"LORA\"");
  }
  if (config.string_if("bias").value_or("none") != "none") {
    refuse_setting(config, "bias", "\"none\" (biases that an adapter trained are not read)");
  }
  for (const char* field :
       {"lora_bias", "use_qalora", "use_bdlora", "alora_invocation_tokens", "layer_replication",
        "trainable_token_indices", "target_parameters", "arrow_config", "kasa_config"}) {
    if (!is_unset(config.find(field))) refuse_setting(config, field, "none");
  }
  // Others change the model's own weights before they train.
  const nlohmann::json* start = config.find("init_lora_weights");
  const bool keeps_base = start == nullptr || start->is_boolean() || *start == "gaussian" ||
                          *start == "eva" || *start == "orthogonal";
  if (!keeps_base) {
    refuse_setting(config, "init_lora_weights", "a start that leaves the model's weights alone");
  }
}

// True if `name` is what `pattern` means by the rules of peft: all of it, or its last steps.
bool matches(const std::string& pattern, const std::string& name, bool any_beginning,
             const std::string& where) {
  const Regex regex(fmt::format("{}(?:{})$", any_beginning ? "(?:.*\\.)?" : "", pattern), where);
  RegexMatcher matcher(regex, name.size());
  return matcher.match_at(name, 0).has_value();
}

// The value of the first pattern of rank_pattern or alpha_pattern that the module matches.
std::optional<double> value_of_pattern(const nlohmann::ordered_json& config,
                                       const std::string& field, const std::string& module,
                                       const std::string& where) {
  const auto it = config.find(field);
  if (it == config.end() || it->is_null()) return std::nullopt;
  if (!it->is_object()) throw FormatError("{} ({}): expected an object", field, where);
  for (const auto& [pattern, value] : it->items()) {
    const std::string name = fmt::format("{}.{} ({})", field, quote(pattern), where);
    if (!matches(pattern, module, /*any_beginning=*/true, name)) continue;
    if (!value.is_number() || value.get<double>() <= 0.0)
      throw FormatError("{}: expected a positive number", name);
    return value.get<double>();
  }
  return std::nullopt;
}

// ---- rows

// What the adapter adds, for all rows of the stored weight.
struct Change {
  Tensor<float> a;          // [rank, n_cols]
  Tensor<float> b;          // [n_stored, rank]
  Tensor<float> magnitude;  // [n_stored], or empty: DoRA's
  double scale = 1.0;
};

class AdaptedRows final : public MatrixRows {
 public:
  AdaptedRows(MatrixRowsPtr base, Change change, Index first_row)
      : base_(std::move(base)), change_(std::move(change)), first_row_(first_row) {}

  void widen(Index begin, Index end, float* out, Index stride) const override {
    base_->widen(begin, end, out, stride);
    const Index n_cols = change_.a.dim(1);
    for (Index r = begin; r < end; ++r) {
      float* row = out + (r - begin) * stride;
      for (Index i = 0; i < change_.a.dim(0); ++i) {
        const auto factor =
            static_cast<float>(change_.scale * double{change_.b.view()(first_row_ + r, i)});
        const float* a = change_.a.data() + i * n_cols;
        for (Index c = 0; c < n_cols; ++c) row[c] += factor * a[c];
      }
      if (change_.magnitude.count() > 0)
        rescale(row, n_cols, change_.magnitude.flat()[static_cast<std::size_t>(first_row_ + r)]);
    }
  }
  std::string file() const override { return base_->file(); }
  void forget(Index begin, Index end) const override { base_->forget(begin, end); }

 private:
  static void rescale(float* row, Index n, float length) {
    double squares = 0.0;
    for (Index c = 0; c < n; ++c) squares += double{row[c]} * double{row[c]};
    const auto factor = static_cast<float>(double{length} / std::sqrt(squares));
    for (Index c = 0; c < n; ++c) row[c] *= factor;
  }

  MatrixRowsPtr base_;
  Change change_;
  Index first_row_;
};

Tensor<float> transposed(const Tensor<float>& from) {
  auto to = Tensor<float>::uninitialized({from.dim(1), from.dim(0)});
  for (Index r = 0; r < from.dim(0); ++r) {
    for (Index c = 0; c < from.dim(1); ++c) to.view()(c, r) = from.view()(r, c);
  }
  return to;
}

}  // namespace

bool is_adapter(const fs::path& folder) {
  return is_there(folder / kConfigFile) && !is_there(folder / "model.safetensors") &&
         !is_there(folder / "model.safetensors.index.json") && !gguf_file_of(folder);
}

fs::path base_of(const fs::path& model) {
  if (!is_adapter(model)) return model;
  const std::string where = (model / kConfigFile).string();
  const nlohmann::json value = parse_json(read_config(model), where);
  const JsonObject config(value, where);
  const auto name = config.string_if("base_model_name_or_path");
  if (!name || name->empty()) {
    config.refuse("base_model_name_or_path", "the name or folder of the model that it changes");
  }
  fs::path base = model / *name;  // beside the adapter, or where it says if that begins at the root
  if (!is_there(base)) {
    try {
      base = find_model(*name);
    } catch (const IoError& error) {
      throw MissingFile("{}: {}", config.name_of("base_model_name_or_path"), error.what());
    }
  }
  if (is_adapter(base)) {
    config.refuse("base_model_name_or_path", "a model (an adapter above another is not read)");
  }
  return base;
}

struct Adapter::Impl {
  std::string where;
  std::string text;
  nlohmann::json config;
  nlohmann::ordered_json in_order;
  WeightFiles files;

  JsonObject settings() const { return JsonObject(config, where); }

  // As target_modules has it: a list of last steps of names, or one expression for whole names.
  void check_is_target(const std::string& module) const {
    const nlohmann::json* targets = settings().find("target_modules");
    if (targets == nullptr || *targets == "all-linear") return;
    bool is_target = false;
    if (targets->is_string()) {
      is_target = matches(targets->get<std::string>(), module, /*any_beginning=*/false,
                          settings().name_of("target_modules"));
    } else {
      for (const auto& one : settings().list("target_modules")) {
        if (!one.is_string()) settings().refuse("target_modules", "names of modules");
        const auto& target = one.get_ref<const std::string&>();
        is_target = is_target || module == target || module.ends_with("." + target);
      }
    }
    if (!is_target) {
      throw FormatError("{}: expected what {} names, found weights for {}", where,
                        settings().name_of("target_modules"), quote(module));
    }
  }

  double scale_of(const std::string& module, Index rank) const {
    const JsonObject json = settings();
    const double expected =
        value_of_pattern(in_order, "rank_pattern", module, where)
            .value_or(static_cast<double>(json.integer_or("r", 1, kMaxRank, 8)));
    if (expected != static_cast<double>(rank)) {
      throw FormatError("{}: expected weights of rank {} for {}, found {}", where, expected,
                        quote(module), rank);
    }
    const double alpha = value_of_pattern(in_order, "alpha_pattern", module, where)
                             .value_or(json.number_or("lora_alpha", 0.0, 1e9, 8.0));
    return alpha / (json.boolean_or("use_rslora", false) ? std::sqrt(expected) : expected);
  }
};

Adapter::Adapter(const fs::path& folder) {
  const std::string where = (folder / kConfigFile).string();
  std::string text = read_config(folder);
  nlohmann::json config = parse_json(text, where);
  refuse_other_methods(JsonObject(config, where));
  nlohmann::ordered_json in_order = parse_ordered_json(text, where);
  impl_ = std::make_unique<Impl>(Impl{where, std::move(text), std::move(config),
                                      std::move(in_order), WeightFiles::open_adapter(folder)});
}

Adapter::Adapter(Adapter&&) noexcept = default;
Adapter& Adapter::operator=(Adapter&&) noexcept = default;
Adapter::~Adapter() = default;

const WeightFiles& Adapter::files() const {
  return impl_->files;
}

const std::string& Adapter::config_text() const {
  return impl_->text;
}

bool Adapter::changes(std::string_view name) const {
  const std::string prefix(name);
  return impl_->files.contains(prefix + ".lora_A.weight") ||
         impl_->files.contains(prefix + ".lora_embedding_A");
}

MatrixRowsPtr Adapter::adapt(MatrixRowsPtr base, const std::string& name, StoredRows part,
                             Index n_cols) const {
  const WeightFiles& files = impl_->files;
  const bool is_embedding = files.contains(name + ".lora_embedding_A");
  const std::string first = name + (is_embedding ? ".lora_embedding_A" : ".lora_A.weight");
  const auto shape = files.shape_of(first).value();
  const Index rank = shape.empty() ? 0 : shape.front();
  if (rank < 1 || rank > kMaxRank) {
    throw FormatError("tensor {}: expected a rank from 1 to {}, found {}", quote(first), kMaxRank,
                      rank);
  }
  std::string module(files.name_in_file(first));
  module.erase(module.size() - (first.size() - name.size()));
  impl_->check_is_target(module);
  Change change;
  change.scale = impl_->scale_of(module, rank);
  if (is_embedding) {  // the same of the transposed weight
    change.b = transposed(files.get_float(first, {rank, part.n_stored}));
    change.a = transposed(files.get_float(name + ".lora_embedding_B", {n_cols, rank}));
  } else {
    change.a = files.get_float(first, {rank, n_cols});
    change.b = files.get_float(name + ".lora_B.weight", {part.n_stored, rank});
  }
  if (impl_->settings().boolean_or("use_dora", false)) {
    if (is_embedding) {
      throw ConfigError("{}: expected DoRA of linear layers, found {}{}", impl_->where,
                        quote(module), kWayOut);
    }
    change.magnitude = files.get_float(name + ".lora_magnitude_vector", {part.n_stored});
  }
  return std::make_unique<AdaptedRows>(std::move(base), std::move(change), part.begin);
}

}  // namespace kvscope
