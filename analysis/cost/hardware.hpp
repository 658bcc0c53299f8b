// A hardware profile: the numbers of one card or processor that a predicted time is made of, each
// with its source.
//
// PEAK is the published arithmetic rate of a number format, in FLOP/s. An EFFICIENCY is the share
// of it (or of the memory's bandwidth) that a kernel reaches. A RUN is a stretch of adjacent keys;
// a GRANULE the bytes of K (or V) that a run holds, which are read in one go. A CURVE is given by
// points: straight lines between them over the logarithm of x, constant beyond the first and last.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvscope {

struct Sourced {
  double value = 0.0;
  std::string source;
};

struct SourcedCurve {
  std::vector<std::pair<double, double>> points;  // ascending x > 0, y > 0
  std::string source;
  double at(double x) const;
};

struct HardwareProfile {
  std::string name;   // "a100-80"
  std::string title;  // "NVIDIA A100 SXM 80 GB"
  std::string kind;   // "gpu" or "cpu"
  /// The format of attention's products ("bf16", "fp16", "f32"): a key of `peak`.
  std::string compute;
  std::map<std::string, Sourced> peak;  // FLOP/s by format
  SourcedCurve
      bandwidth;   // bytes/s by bytes that a stage reads: what is reached, not what is printed
  Sourced memory;  // bytes
  Sourced launch;  // seconds from one stage's end to the next one's work
  Sourced attend;  // share of peak of dense attention over many rows
  SourcedCurve attend_rows;  // share of that by rows that share their keys
  Sourced score;             // share of peak of scoring
  Sourced matmul;            // share of peak of the other layers' products
  SourcedCurve gather;       // share of the bandwidth by bytes of a granule
  Sourced topk;              // seconds per ranked score, all lists side by side
  /// `attend` of other attention kernels, by name; may be empty.
  std::map<std::string, Sourced> kernels;

  double peak_flops() const { return peak.at(compute).value; }
};

/// Reads a profile. `where` names it in messages. Throws FormatError, one sentence: a field that is
/// missing, without a source, or out of range.
HardwareProfile parse_hardware(std::string_view text, const std::string& where);

/// The profile as such a file.
nlohmann::ordered_json hardware_json(const HardwareProfile& profile);

/// Names of the profiles that are built in, ascending.
std::vector<std::string> hardware_names();

/// A built-in profile by name, or the file at a path (a word with a slash or ".json"). Throws
/// ConfigError for a name that is not known, naming those that are.
HardwareProfile find_hardware(const std::string& name_or_path);

}  // namespace kvscope
