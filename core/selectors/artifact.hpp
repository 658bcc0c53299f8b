// A calibration artifact: what a method learned from a recorded text, as a JSON file that later
// runs load.
//
// Written by `kvscope fit`. It names its method, the recording that it was learned from (uuid, hash
// of the contents), the attention structure of the model, and carries a checksum over all of that,
// so that a file of another method, another model or with changed bytes is refused with a sentence.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/selectors/selector.hpp"
#include "core/trace/source.hpp"

namespace kvscope {

struct Artifact {
  ArtifactOrigin origin;
  std::string model_name;  // of the checkpoint
  Index n_layers = 0;
  Index n_q = 0;
  Index n_kv = 0;
  Index d_head = 0;
  nlohmann::ordered_json options;
  nlohmann::ordered_json values;
};

/// The file's text: what `method` learned from `text`.
std::string artifact_text(std::string_view method, const Learned& learned, const TraceInfo& text);

/// Throws IoError if the file cannot be read, FormatError if it is no artifact or damaged,
/// ConfigError if another method made it.
Artifact read_artifact(const std::string& file, std::string_view method);

/// Throws ConfigError unless the artifact is of a model with this attention structure.
void check_shape(const Artifact& artifact, const AttentionShape& shape);

/// A method's option that names an artifact; the file is read when it is first needed, once.
class ArtifactFile {
 public:
  /// `file`: the method's option, which is read when it is needed.
  ArtifactFile(std::string_view method, const std::string& file) : method_(method), file_(file) {}
  bool is_named() const { return !file_.empty(); }
  const Artifact& get() const;
  /// One origin, or none if no file is named: what Selector::artifacts() answers.
  std::vector<ArtifactOrigin> origins() const;
  /// values[name] as a list of n lists (or other values); throws FormatError for anything else.
  const nlohmann::ordered_json& list(std::string_view name, std::size_t n) const;
  /// A list of n finite numbers, or of n whole numbers in [low, high]; throws FormatError naming
  /// `what`.
  std::vector<double> numbers(const nlohmann::ordered_json& value, std::size_t n,
                              std::string_view what) const;
  std::vector<Index> indices(const nlohmann::ordered_json& value, std::size_t n, Index low,
                             Index high, std::string_view what) const;
  /// values["layers"]: ascending layers of the model.
  std::vector<Index> layers() const;

 private:
  [[noreturn]] void refuse(std::string_view what) const;

  std::string method_;
  const std::string& file_;
  mutable std::shared_ptr<const Artifact> loaded_;
};

}  // namespace kvscope
