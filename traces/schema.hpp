// The trace format, version 1: every dataset name once, and which arrays a trace with given
// contents has.
#pragma once

#include <string>
#include <vector>

#include "core/trace/info.hpp"
#include "traces/h5.hpp"

namespace kvscope::schema {

inline constexpr const char* kFormat = "kvscope-trace";
inline constexpr int kMajor = 1;
inline constexpr int kMinor = 3;

// datasets that hold no tensor
inline constexpr const char* kCalls = "/units";                // i64 [n_calls, 3]
inline constexpr const char* kProgress = "/progress";          // i64 [1]
inline constexpr const char* kLayers = "/recorded/layers";     // i64 [n]
inline constexpr const char* kQHeads = "/recorded/q_heads";    // i64 [n]
inline constexpr const char* kKvHeads = "/recorded/kv_heads";  // i64 [n]
inline constexpr const char* kWindows = "/model/windows";      // i64 [n_layers], 0 = full attention
inline constexpr const char* kSinks = "/model/sinks";          // f32 [n_layers, n_q]
inline constexpr const char* kMovedScores = "/recorded/moved_scores";       // f32 [n]
inline constexpr const char* kLayerKinds = "/model/layer_kinds";            // i64 [n_layers, 2]
inline constexpr const char* kLayerShapes = "/model/layer_shapes";          // i64 [n_layers, 3]
inline constexpr const char* kLayerScores = "/model/layer_scores";          // f32 [n_layers, 2]
inline constexpr const char* kRopeFrequencies = "/model/rope_frequencies";  // f32 [n_layers, pairs]
inline constexpr const char* kRopeAmplitudes = "/model/rope_amplitudes";    // f32 [n_layers]
inline constexpr const char* kConfigJson = "/model/config_json";            // u8 [n]
inline constexpr const char* kIndexLayers = "/recorded/index_layers";       // i64 [n]
inline constexpr const char* kTokenBytes = "/token_bytes";                  // u8 [capacity]
inline constexpr const char* kTokenOffsets = "/token_offsets";              // i64 [n_tokens + 1]
inline constexpr const char* kTextChecksums = "/checksums/token_text";      // u64 [n_calls]

inline constexpr const char* kModelChecksum = "/checksums/model";  // u64 [1]

// coordinates of the axes that are called so: for other programs, no reader of ours asks for them
inline constexpr const char* kQHeadAxis = "/q_head";    // i64 [q heads], as in /recorded/q_heads
inline constexpr const char* kKvHeadAxis = "/kv_head";  // i64 [KV heads]
inline constexpr const char* kRowAxis = "/row";         // i64 [rows], positions

/// What positions run along the axis that grows with the calls.
enum class Along { tokens, rows, full_pages };

/// One array that is filled call by call.
struct ArraySpec {
  std::string path;           // "/layers/3/k"
  std::string checksum_path;  // "/checksums/layers/3/k", u64 [n_calls, heads] ([n_calls] without a
                              // head axis)
  h5::Type type = h5::Type::f32;
  h5::Dims dims;
  Along along = Along::tokens;
  bool has_heads = false;  // axis 0 counts heads, axis 1 grows; else axis 0 grows
  bool keys_last = false;  // the last axis counts key positions: a call fills columns [0, call end)
  std::string axes;        // "q_head,token,dim"
  std::string units;

  Index n_heads() const { return has_heads ? dims[0] : 1; }
  std::size_t growing_axis() const { return has_heads ? 1 : 0; }
  Index n_positions() const { return dims[growing_axis()]; }
  /// Elements of one head at one position.
  Index row_size() const;
  /// Elements of a row that a call which ends at token `end` fills.
  Index filled_row_size(Index end) const { return keys_last ? end : row_size(); }
};

/// The lowest minor version whose readers understand all of such a trace.
int minor_version_of(const TraceInfo& info);

/// All arrays of a trace, in a fixed order: tokens, then layer by layer, then logits.
std::vector<ArraySpec> trace_arrays(const TraceInfo& info);

/// The positions along the growing axis that the call fills.
TokenRange positions_of(const ArraySpec& array, const TraceInfo& info, const ForwardCall& call);

/// "qkv,lse,...": what a reader has to know to understand all of the file.
std::vector<std::string> features_of(const TraceInfo& info);

/// The attributes that every dataset carries: axes, dtype_logical (of its type), units,
/// encoding-type and -version.
void describe(h5::Dataset& dataset, const std::string& axes, const std::string& units);
/// The same, and names the axes for other programs: everything but tables of checksums.
void describe(h5::File& file, h5::Dataset& dataset, const std::string& axes,
              const std::string& units);

/// The path of an array of one layer: layer_path(3, "k") is "/layers/3/k".
std::string layer_path(Index layer, const std::string& name);

}  // namespace kvscope::schema
