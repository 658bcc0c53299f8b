// Keys that a call's queries get by position (StreamingLLM), by exact attention (the oracles,
// MInference's columns and diagonals) or by some channels (SparQ): chosen and attended to.
#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "core/attention/head_share.hpp"
#include "core/cuda/backend_call.hpp"

namespace kvscope::gpu {

namespace {

constexpr const char* kUse = "lists";
constexpr Index kMostShares = 16;  // query heads of a KV head, one less, of SparQ's steps
constexpr Index kMostMarked = Index{1} << 20;                   // keys that a block marks
constexpr std::int64_t kMostListBytes = std::int64_t{4} << 30;  // of lists without a budget

}  // namespace

bool CudaCall::pick(Index layer, const ListPlan& plan) {
  if (plan.by == ListPlan::By::attention) {
    const auto n_q = static_cast<int>(config_.n_q);
    if (!plan.has_budget() &&
        BestKeys::bytes_of_all(n_q, n_tok_, static_cast<int>(pos_begin_)) > kMostListBytes)
      return false;
    BestKeysOptions options;
    options.budget = static_cast<int>(plan.budget);
    options.least_weight = plan.least_weight;
    options.mass = plan.mass;
    options.owner = plan.owner;
    options.forces_own = plan.forces_own;
    options.joins_rows = plan.joins_rows;
    work_.best_keys.choose(store_.call_shape(), options, rows_of(layer),
                           static_cast<int>(pos_begin_), work_.stream);
    choice_ = {work_.best_keys.lists(), !plan.joins_rows, plan.forces_own};
  } else if (plan.by == ListPlan::By::page_attention) {
    if (n_tok_ != 1 && !plan.forces_own) return false;
    const BestPagesOptions options{static_cast<int>(plan.page_size), static_cast<int>(plan.budget),
                                   plan.pages, plan.owner};
    const auto n_past = static_cast<int>(pos_begin_);
    const CallShape shape = store_.call_shape();
    BestPages& pages = work_.best_pages;
    choice_ = {plan.forces_own
                   ? pages.choose_before(shape, options, rows_of(layer), n_past, work_.stream)
                   : pages.choose(shape, options, rows_of(layer), n_past, work_.stream),
               !plan.joins_rows, plan.forces_own};
  } else if (plan.by == ListPlan::By::slashes) {
    const Index n_context = pos_begin_ + n_tok_;
    const auto number = [&](Index n) { return static_cast<int>(std::min(n, n_context)); };
    if (n_context > kMostMarked ||
        BestKeys::bytes_of_all(static_cast<int>(config_.n_q), n_tok_,
                               static_cast<int>(pos_begin_)) > kMostListBytes)
      return false;
    const SlashOptions options{number(plan.n_voters), number(plan.n_columns),
                               number(plan.n_slashes), number(plan.n_sink), number(plan.n_latest)};
    choice_ = {work_.slash_lists.choose(store_.call_shape(), options, rows_of(layer),
                                        static_cast<int>(pos_begin_), work_.stream),
               /*per_row=*/true, /*adds_own=*/false};
  } else if (plan.by == ListPlan::By::channels) {
    const bool is_of_steps = plan.n_latest > 0 || plan.adds_mean;
    if (is_of_steps && (n_tok_ != 1 || config_.group() >= kMostShares)) return false;
    const Index n_channels = channels_of(plan.n_channels, plan.channel_share, config_.d_head);
    const CallShape shape = store_.call_shape();
    work_.sparq.choose(shape,
                       {static_cast<int>(plan.budget), static_cast<int>(n_channels),
                        static_cast<int>(plan.n_latest), plan.adds_mean},
                       rows_of(layer), static_cast<int>(pos_begin_), work_.stream);
    if (plan.adds_mean) means_ = store_.mean_values(layer);
    choice_ = {work_.sparq.lists(), !plan.joins_rows, plan.forces_own};
  } else if (plan.by != ListPlan::By::place) {
    return false;
  } else if (n_tok_ == 1 && streamed_ != plan) {
    // one list for all KV heads and layers
    const KeyList list = stream_of(plan, pos_begin_ + 1);
    const std::vector<std::int32_t> counts(static_cast<std::size_t>(config_.n_kv),
                                           static_cast<std::int32_t>(list.size()));
    stream_keys_ =
        work_.stream_keys.upload(list.forced.data(), list.forced.size(), kUse, work_.stream);
    stream_counts_ = work_.stream_counts.upload(counts.data(), counts.size(), kUse, work_.stream);
    streamed_ = plan;
  }
  picked_ = plan;
  return true;
}

void CudaCall::attend_picked(Index layer, Block& out) {
  const bool is_stream = picked_->by == ListPlan::By::place;
  const DeviceLists lists = is_stream ? DeviceLists{stream_keys_, stream_counts_, /*stride=*/0,
                                                    static_cast<int>(config_.n_kv), /*page_size=*/1}
                                      : choice_.lists;
  if (n_tok_ == 1 || picked_->joins_rows) {
    const OwnKeys own = picked_->forces_own ? OwnKeys::causal : OwnKeys::in_list;
    gpu::attend(store_.call_shape(), rows_of(layer), lists, answer_, lse_, {own}, work_.stream);
    if (picked_->adds_mean) work_.sparq.mix(store_.call_shape(), means_, answer_, work_.stream);
    // by weight there may be no key; else there is one, or the own one
    hand_on(layer, out, /*may_see_nothing=*/picked_->least_weight > 0.0);
    return;
  }
  if (is_stream) {
    const AttendRule window{.window = static_cast<int>(picked_->budget - picked_->n_sink),
                            .n_first = static_cast<int>(picked_->n_sink)};
    attend_densely(store_.call_shape(), rows_of(layer), answer_, lse_, work_.stream, window);
    hand_on(layer, out, /*may_see_nothing=*/false);
    return;
  }
  AnyAttention call = any_attention(layer, out);
  call.lists.keys = lists.items;
  call.lists.counts = lists.counts;
  call.lists.stride = lists.stride;
  call.lists.n_owners = lists.n_owners;
  call.lists.heads_per_owner = static_cast<int>(config_.n_q) / lists.n_owners;
  call.lists.adds_own = picked_->forces_own;
  attend_any(call, work_.stream);
}

}  // namespace kvscope::gpu
