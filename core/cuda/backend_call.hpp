// One forward call on the device.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "core/cuda/attend.hpp"
#include "core/cuda/attend_any.hpp"
#include "core/cuda/backend.hpp"
#include "core/cuda/device_weights.hpp"
#include "core/cuda/kv_rows.hpp"
#include "core/cuda/workspace.hpp"

namespace kvscope::gpu {

/// A model as the backend holds it.
struct CudaModel {
  const ModelConfig& config;
  DeviceWeights weights;
  const float* frequencies = nullptr;        // of RoPE, [rotary_dim / 2]
  const float* local_frequencies = nullptr;  // of layers with a window, where they differ
};

/// Rows of a block: feature f of token t at values + t * stride + f; of q, k and v from one product
/// head h begins at h * head_stride.
struct RowBlock final : Block {
  float* values = nullptr;
  std::int64_t stride = 0;
  std::int64_t head_stride = 0;
  /// [n_tok, features] the same rounded to bf16, where products are in it; current if has_halves.
  /// Attention's answer is only there then.
  std::uint16_t* halves = nullptr;
  bool has_halves = false;
};
inline RowBlock& of(Block& block) {
  return static_cast<RowBlock&>(block);
}
inline const RowBlock& of(const Block& block) {
  return static_cast<const RowBlock&>(block);
}

/// What a call of n_tok tokens takes of the device beside weights and store, about: for plans of
/// how many run at once. n_context: the last token's position.
std::size_t call_bytes(const ModelConfig& config, Index n_tok, Index n_context,
                       bool has_bf16_products);

class CudaCall final : public BackendCall, private RemoteRows {
 public:
  CudaCall(const CudaModel& model, Index n_tok, KvRows& store, Workspaces::Lease work);

  std::unique_ptr<Block> make_block(Index n_features) override;
  void embed(std::span<const TokenId> tokens, Block& x) override;
  void norm(Index layer, NormAt at, const Block& x, Block& y) override;
  void project_qkv(Index layer, const Block& x, Block& q, Block& k, Block& v) override;
  void position_and_append(Index layer, Block& q, Block& k, const Block& v) override;
  void attend(Index layer, const Block& q, Block& out) override;
  void attend_lists(const AttentionQuestion& question, const Selection& selection, const Block& q,
                    Block& out) override;
  bool reads_host_values() const override { return false; }  // they lie on the device
  bool choose(Index layer, const ListPlan& plan, const Block& q) override;
  void attend_chosen(Index layer, const Block& q, Block& out) override;
  Selection chosen_lists() override;
  void count_chosen(Index layer) override;
  ListCounts chosen_counts(Index layer) override;
  const RemoteRows* remote_rows(Index layer) override;
  void project_out(Index layer, const Block& x, Block& y) override;
  void gated_mlp(Index layer, const Block& x, Block& y) override;
  Routing mix_experts(Index layer, const Block& x, Block& y) override;
  void add(Block& x, const Block& y) override;
  Tensor<float> logits(const Block& x, Index n_rows) override;
  TensorView<const float> to_host_rows(const Block& q) override;
  TensorView<const float> host_lse() override;
  bool hand_out(Index layer, DType dtype, std::function<void(const RowsEvent&)> give) override;
  void deliver() override;
  void start_clock() override { work_.clock.start(work_.stream); }
  void stop_clock(double& seconds) override { work_.clock.stop(seconds, work_.stream); }
  void finish() override;

 private:
  void product(const DeviceMatrix& matrix, const float* bias, const RowBlock& x, float* y,
               std::int64_t y_stride);
  HeadsCall placed(Index layer, const RowBlock& x, Index n_heads, const float* head_norm,
                   bool turns, HeadsCall call);
  /// A sum that was asked for last waits for the norm that reads it: both are one kernel then.
  /// Whatever else reads x or writes y calls this first.
  void add_now();
  /// True if the kernels for tensor cores compute the layer's attention, and methods choose there.
  bool is_plain(Index layer) const;
  /// How attend.hpp computes it, if one of its kernels does.
  std::optional<AttendRule> rule_of(Index layer) const;
  AnyAttention any_attention(Index layer, Block& out);
  DeviceRows rows_of(Index layer) const;
  void scores(Index q_head, Index first_row, Index end_row, std::span<double> out) const override;
  std::vector<std::vector<double>> softmax_votes(std::span<const std::span<const KeyPos>> lists,
                                                 Index first_row, Index end_row) const override;
  Tensor<float> mean_attention(Index first_row, Index end_row) const override;
  std::vector<std::vector<double>> mean_cosines(std::span<const std::span<const KeyPos>> lists,
                                                bool takes_unit, double eps) const override;
  std::vector<std::vector<double>> inverse_norms(std::span<const std::span<const KeyPos>> lists,
                                                 double eps) const override;
  void linear_scores(std::span<const double> vectors, TokenRange keys,
                     std::span<const std::span<double>> out) const override;
  void largest_scores(std::span<const double> vectors, TokenRange keys,
                      std::span<const std::span<double>> out) const override;
  std::vector<std::vector<double>> value_sums(TokenRange keys) const override;
  /// Products of the vectors of each KV head, rows [n_kv][n], some at a time: take(row, products).
  void products(std::span<const double> vectors, TokenRange keys,
                const std::function<void(std::size_t kv_head, std::size_t i,
                                         std::span<const float>)>& take) const;
  CosineCall cosine_call(std::span<const std::span<const KeyPos>> lists, double eps) const;
  /// True if the list ends with all of the call's own keys.
  bool ends_with_own(std::span<const KeyPos> list) const;
  /// Keys of the longest list; without any, of the context. Throws ShapeError for lists without
  /// the call's own keys.
  int longest_of(std::span<const std::span<const KeyPos>> lists) const;
  /// [n_kv, stride] of the device as rows of the lists' lengths. Waits.
  template <class T>
  std::vector<std::vector<double>> fetch_by_list(
      const T* values, std::int64_t stride, std::span<const std::span<const KeyPos>> lists) const;
  /// The keys before the call of these lists.
  DeviceLists upload_past(std::span<const std::span<const KeyPos>> lists) const;
  /// Attends to lists that serve the whole call and end with its own keys, as evicting methods' do;
  /// false, and nothing happened, for others.
  bool attend_shared_lists(Index layer, const Selection& selection, Block& out);
  /// Attends to a choice of lists per row and query head.
  void attend_rows_lists(Index layer, Block& out);
  /// Attention's answer, head by head in answer_, to rows of tokens.
  void hand_on(Index layer, Block& out);

  /// The last choice, as lists on the device: one per owner, or with per_row one per row and owner.
  struct Choice {
    DeviceLists lists;
    bool per_row = false;
    bool adds_own = false;               // the call's keys, each row's up to its own
    std::optional<Index> n_listed = {};  // keys of every list, where its maker knows
  };

  /// Rows that are being copied.
  struct Parcel {
    HostSlot memory;
    RowsEvent rows;
    const BadPlace* bad = nullptr;  // as the device had it behind the rows
    Event copied;
    std::function<void(const RowsEvent&)> give;
  };
  HostSlot slot_of(std::size_t bytes);
  void give_first();

  const CudaModel& model_;
  const ModelConfig& config_;
  KvRows& store_;
  Workspaces::Lease lease_;
  Workspace& work_;
  /// From the store's begin_call() on. Of a call that ends by an error, it waits for the work that
  /// uses store and workspace: both go to others.
  struct Opened {
    ~Opened();
    KvRows& store;
    Workspace& work;
    bool is_finished = false;
  };
  Opened opened_;
  Index pos_begin_;
  int n_tok_;
  float* qkv_ = nullptr;         // [n_tok, n_qkv]
  std::byte* q_rows_ = nullptr;  // [n_q, n_tok, d_head] of the store's dtype
  std::byte* answer_ = nullptr;  // the same
  float* lse_ = nullptr;         // [n_q, n_tok]
  float *cos_ = nullptr, *sin_ = nullptr, *local_cos_ = nullptr, *local_sin_ = nullptr;
  struct Sum {
    float* x = nullptr;
    const float* y = nullptr;
  };
  Sum sum_;                          // x += y, not in the stream yet
  bool is_answered_ = false;         // by the last choose() itself
  Index remote_layer_ = 0;           // of the last remote_rows()
  mutable std::mutex remote_mutex_;  // methods may ask from several threads
  Choice choice_;
  struct Counted {
    Index layer;
    std::optional<Index> n_listed;
  };
  std::vector<Counted> counted_;       // in the order of work_.counts
  std::vector<std::uint64_t> counts_;  // of all of them, once they are fetched
  std::deque<Parcel> parcels_;
};

}  // namespace kvscope::gpu
