// Synthetic traces for the tests of traces/: seeded numbers whose value tells where they belong.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/trace/receiver.hpp"

namespace kvscope::test {

/// A folder that disappears with the object.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// The shape of a small trace: 3 layers of 4 query and 2 KV heads, 8 channels, prompt in chunks,
/// then decoding.
struct Plan {
  DType dtype = DType::f32;
  CaptureSet capture;
  Index n_prompt = 21;
  Index n_decode = 3;
  Index chunk = 8;
  std::vector<Index> layers = {0, 1, 2};
  std::vector<Index> q_heads = {0, 1, 2, 3};
  std::vector<Index> kv_heads = {0, 1};
  TokenRange rows = {0, 24};
  bool with_text = true;
};
TraceInfo make_info(const Plan& plan);

/// Everything of a trace, made from a seed: a consistent causal attention over random q, k, v.
struct SyntheticTrace {
  TraceInfo info;
  std::vector<TokenId> tokens;
  std::vector<std::string> texts;
  struct Layer {
    Tensor<float> q;     // [n_q of the model, n_tokens, d]
    Tensor<float> k, v;  // [n_kv of the model, n_tokens, d]
    Tensor<float> lse;   // [n_q of the model, n_tokens]
    Tensor<float> attn;  // [n_q of the model, n_tokens, n_tokens]
  };
  std::vector<Layer> layers;  // of the model
  Tensor<float> logits;       // [n_tokens, n_vocab]
};
SyntheticTrace make_trace(const Plan& plan, std::uint64_t seed = 1);

/// Feeds units [first, last) to a sink that has begun. `after_commit` may be empty.
void write_units(const SyntheticTrace& trace, TraceReceiver& receiver, std::size_t first,
                 std::size_t last, const std::function<void(std::size_t)>& after_commit = {});

/// begin, all units, finish(complete).
void write_all(const SyntheticTrace& trace, TraceReceiver& receiver);

/// The value after a round trip through the storage type.
float stored(DType dtype, float value);

/// All bytes of a file.
std::string slurp(const std::filesystem::path& path);
void spill(const std::filesystem::path& path, const std::string& bytes);

/// Runs a Python script with h5py (sys.argv[1..] = args); returns its standard output. Fails the
/// test on an error.
std::string run_python(const std::string& script, const std::vector<std::string>& args);

}  // namespace kvscope::test
