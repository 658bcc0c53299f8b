// A LoRA adapter (arXiv 2106.09685) as the Python package peft saves it: a folder with
// adapter_config.json and adapter_model.safetensors, which changes a model that lies elsewhere.
//
// A linear layer's weight W [n_rows, n_cols] becomes W + s B A, with A [rank, n_cols],
// B [n_rows, rank] and s = alpha / rank (rsLoRA, arXiv 2312.03732: alpha / sqrt(rank)). DoRA (arXiv
// 2402.09353, equation 5) then scales every row to a length that it learned. Whole tensors
// (modules_to_save) take the place of the model's.
#pragma once

#include <filesystem>

#include "core/base/vocabulary.hpp"
#include "core/model/matrix_rows.hpp"
#include "core/model/weights.hpp"

namespace kvscope {

/// True for a folder with adapter_config.json and no weights of a model.
bool is_adapter(const std::filesystem::path& folder);

/// The model that an adapter changes: its base_model_name_or_path, which is found as --model finds
/// models, or beside the adapter. What is no adapter is its own base. Throws IoError if it is not
/// there, FormatError if it is an adapter too.
std::filesystem::path base_of(const std::filesystem::path& model);

/// An adapter's settings and tensors.
class Adapter {
 public:
  /// Reads `folder`. Throws IoError or FormatError; ConfigError for settings that are not computed.
  explicit Adapter(const std::filesystem::path& folder);
  Adapter(Adapter&&) noexcept;
  Adapter& operator=(Adapter&&) noexcept;
  ~Adapter();

  /// Its tensors, by the hub's names of what they belong to: "model.layers.0.self_attn.q_proj" and
  /// ".lora_A.weight".
  const WeightFiles& files() const;
  /// The text of adapter_config.json.
  const std::string& config_text() const;

  /// True if the adapter changes the linear layer (or embedding) `name`.
  bool changes(std::string_view name) const;
  /// `base` with the change: rows [part.begin, ...) of the weight [part.n_stored, n_cols] of
  /// `name`, for which changes() is true. Throws FormatError for tensors that do not fit.
  MatrixRowsPtr adapt(MatrixRowsPtr base, const std::string& name, StoredRows part,
                      Index n_cols) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvscope
