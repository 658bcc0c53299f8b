// What a model on disk is: its shapes, what its file holds, and whether it runs here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace kvscope::cli {

/// Shapes, sizes and, of a GGUF file, its metadata; for `kvscope info`. A GGUF file that is not
/// computed is described all the same, with the reason in "runs_here". Throws IoError or
/// FormatError.
nlohmann::ordered_json describe_model(const std::filesystem::path& path);

/// One line of `kvscope models`.
struct ModelSummary {
  std::string family;  // empty if unknown
  std::int64_t n_parameters = 0;
  std::int64_t stored_bytes = 0;
  std::string weights;  // what most of them are stored as
  std::int64_t max_positions = 0;
  std::string why_not;  // empty: it runs here
};

/// Reads headers only. Throws nothing: what is wrong is why_not.
ModelSummary summarize_model(const std::filesystem::path& path);

}  // namespace kvscope::cli
