// Synthetic traces for the tests of traces/: seeded numbers whose value tells where they belong.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/trace/receiver.hpp"
#include "tests/support/temp_dir.hpp"
#include "traces/verify.hpp"

namespace kvscope::test {

using TempFolder = testing::TempDir;

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
  std::vector<LayerShape> layer_shapes = {};
  float key_scale = 1.0F;  // of layer 0
};
TraceInfo make_info(const Plan& plan);

/// 35 calls of everything that a trace may hold: 15 of 4 tokens, then 20 of one.
Plan plan_of_many_calls();

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

/// Hands everything on to another one: what changes a call on its way derives from it.
class PassingOn : public TraceReceiver {
 public:
  explicit PassingOn(TraceReceiver& to) : to_(to) {}
  void begin(const TraceInfo& info) override { to_.begin(info); }
  void write(const CallRows& rows) override { to_.write(rows); }
  void write_tokens(std::span<const TokenId> ids, std::span<const std::string> bytes) override {
    to_.write_tokens(ids, bytes);
  }
  void commit_call() override { to_.commit_call(); }
  void finish(TraceStatus status) override { to_.finish(status); }

 protected:
  TraceReceiver& to_;
};

/// Feeds calls [first, last) to a sink that has begun. `after_commit` may be empty.
void write_calls(const SyntheticTrace& trace, TraceReceiver& receiver, std::size_t first,
                 std::size_t last, const std::function<void(std::size_t)>& after_commit = {});

/// begin and the first calls; no finish.
void write_begun(const SyntheticTrace& trace, TraceReceiver& receiver, std::size_t n_calls);

/// begin, all calls, finish(complete).
void write_all(const SyntheticTrace& trace, TraceReceiver& receiver);

/// What verify_trace says of a file, all of it looked at.
VerifyReport verified(const std::filesystem::path& file);
void check_verifies(const std::filesystem::path& file);

/// The value after a round trip through the storage type.
float stored(DType dtype, float value);

/// All bytes of a file.
std::string slurp(const std::filesystem::path& path);
void spill(const std::filesystem::path& path, const std::string& bytes);

/// Where in a file's bytes a value lies first.
std::size_t place_of(float value, const std::string& bytes);

/// Flips a bit of that value in the file.
void damage(const std::filesystem::path& file, float value);

/// What the error says that ends `work`, or "no error". An error of another type goes through.
template <class Expected = Error>
std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Expected& error) {
    return error.what();
  }
  return "no error";
}

/// Runs a Python script with h5py (sys.argv[1..] = args); returns its standard output. Fails the
/// test on an error.
std::string run_python(const std::string& script, const std::vector<std::string>& args);

}  // namespace kvscope::test
