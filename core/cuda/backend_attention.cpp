// The attention of a call: densely, over the host's lists, and over what the device chose.
#include <algorithm>
#include <span>

#include "core/cuda/backend.hpp"
#include "core/cuda/backend_call.hpp"

namespace kvscope::gpu {

namespace {

constexpr Index kMostChunk = 1024;  // tokens, of QuoKA's kernels
constexpr std::int64_t kMostListBytes = std::int64_t{4} << 30;
constexpr Index kMostGroup =
    16;  // query heads of a KV head that have lists of their own in Quest's

}  // namespace

bool CudaCall::is_plain(Index layer) const {
  return (config_.d_head == 64 || config_.d_head == 128) &&
         !config_.window[static_cast<std::size_t>(layer)] && config_.plan.score_softcap == 0.0 &&
         model_.weights.layer(layer).sink_logits == nullptr;
}

std::optional<AttendRule> CudaCall::rule_of(Index layer) const {
  if (is_plain(layer)) return AttendRule{};
  const Index d = config_.d_head;
  if (d != 64 && d != 128 && d != 256) return std::nullopt;
  AttendRule rule;
  rule.window = static_cast<int>(config_.window[static_cast<std::size_t>(layer)].value_or(0));
  rule.score_cap = static_cast<float>(config_.plan.score_softcap);
  rule.sink_logits = model_.weights.layer(layer).sink_logits;
  return rule;
}

DeviceRows CudaCall::rows_of(Index layer) const {
  return {q_rows_, store_.k(layer), store_.v(layer), store_.n_past(), n_tok_};
}

void CudaCall::hand_on(Index layer, Block& out) {
  HeadsToRows call;
  call.out = answer_;
  call.dtype = store_.dtype();
  call.lse = lse_;
  // The output projection is all that reads it.
  of(out).has_halves = of(out).halves != nullptr;
  call.y_dtype = of(out).has_halves ? DType::bf16 : DType::f32;
  call.y = of(out).has_halves ? static_cast<void*>(of(out).halves) : of(out).values;
  call.n_q = static_cast<int>(config_.n_q);
  call.d_head = static_cast<int>(config_.d_head);
  call.bad = reinterpret_cast<BadPlace*>(work_.bad.data());
  call.first_code = bad_place(layer, BadValue::score, pos_begin_);
  heads_to_rows(call, n_tok_, work_.stream);
}

AnyAttention CudaCall::any_attention(Index layer, Block& out) {
  AnyAttention call;
  call.q = q_rows_;
  call.k = store_.k(layer);
  call.v = store_.v(layer);
  call.dtype = store_.dtype();
  call.capacity = store_.capacity();
  call.n_q = static_cast<int>(config_.n_q);
  call.n_kv = static_cast<int>(config_.n_kv);
  call.d_head = static_cast<int>(config_.d_head);
  call.n_tok = n_tok_;
  call.pos_begin = pos_begin_;
  call.score_scale = config_.score_scale();
  call.score_cap = static_cast<float>(config_.plan.score_softcap);
  call.sink_logits = model_.weights.layer(layer).sink_logits;
  of(out).has_halves = false;
  call.out = of(out).values;
  call.lse = lse_;
  call.bad = reinterpret_cast<BadPlace*>(work_.bad.data());
  call.first_code = bad_place(layer, BadValue::score, pos_begin_);
  return call;
}

void CudaCall::attend(Index layer, const Block&, Block& out) {
  if (const auto rule = rule_of(layer)) {
    gpu::attend(store_.call_shape(), rows_of(layer), DeviceLists{}, answer_, lse_, {.rule = *rule},
                work_.stream);
    hand_on(layer, out);
    return;
  }
  AnyAttention call = any_attention(layer, out);
  call.window = config_.window[static_cast<std::size_t>(layer)].value_or(0);
  attend_any(call, work_.stream);
}

void CudaCall::attend_lists(const AttentionQuestion& question, const Selection& selection,
                            const Block&, Block& out) {
  const StreamHandle stream = work_.stream;
  if (attend_shared_lists(question.layer, selection, out)) return;
  AnyAttention call = any_attention(question.layer, out);
  // A list without keys is a list all the same: there is always something to point to.
  constexpr KeyPos kNoKey = 0;
  const auto keys = selection.keys().empty() ? std::span(&kNoKey, 1) : selection.keys();
  call.lists.keys = work_.list_keys.upload(keys.data(), keys.size(), "lists", stream);
  call.lists.begin = work_.list_begin.upload(selection.begins().data(), selection.begins().size(),
                                             "lists", stream);
  call.lists.log_weight = work_.list_weights.upload(
      selection.log_weights().data(), selection.log_weights().size(), "lists", stream);
  call.lists.rows_per_list = static_cast<int>(selection.rows_per_list);
  call.lists.n_row_blocks = static_cast<int>(selection.n_row_blocks());
  call.lists.heads_per_owner =
      static_cast<int>(selection.owner == ListOwner::q_head    ? 1
                       : selection.owner == ListOwner::kv_head ? config_.group()
                                                               : config_.n_q);
  const Summaries& summaries = selection.summaries;
  if (!summaries.empty()) {
    const auto given = [&](GrowingBuffer& buffer, std::span<const float> values) {
      return buffer.upload(values.data(), values.size(), "summaries", stream);
    };
    call.summaries.begin = work_.summary_begin.upload(summaries.begin.data(),
                                                      summaries.begin.size(), "summaries", stream);
    call.summaries.k = given(work_.summary_k, summaries.k.flat());
    call.summaries.v = given(work_.summary_v, summaries.v.flat());
    call.summaries.log_count = given(work_.summary_count, summaries.log_count);
    call.summaries.list_share = given(work_.list_share, summaries.list_share.flat());
  }
  attend_any(call, stream);
}

bool CudaCall::choose(Index layer, const ListPlan& plan, const Block&) {
  is_answered_ = false;
  if (!is_plain(layer) || !takes_plan(plan)) return false;
  if (plan.by == ListPlan::By::far_cosines) {
    if (n_tok_ > kMostChunk) return false;
    Quoka& quoka = store_.quoka(layer, plan, n_tok_);
    quoka.choose(rows_of(layer), work_.stream);
    choice_ = {quoka.lists(), /*per_row=*/false, /*adds_own=*/true,
               std::min(pos_begin_, plan.budget)};
    return true;
  }
  if (plan.by == ListPlan::By::attention) {
    const auto n_past = static_cast<int>(pos_begin_);
    const bool may_be_empty = plan.least_weight > 0.0;  // which attend_any alone takes
    const std::int64_t bytes_of_all =
        4 * config_.n_q * n_tok_ * (pos_begin_ + n_tok_);  // lists without a budget
    if (!plan.has_budget() && bytes_of_all > kMostListBytes) return false;
    choice_ = {work_.votes.best(
                   store_.call_shape(), rows_of(layer), n_past,
                   {static_cast<int>(plan.budget), plan.least_weight, plan.mass, plan.forces_own},
                   work_.stream),
               /*per_row=*/n_tok_ > 1 || may_be_empty, plan.forces_own};
    return true;
  }
  const bool is_wide = plan.owner != ListPlan::Owner::group_sum && config_.group() > kMostGroup;
  if ((n_tok_ != 1 && !plan.forces_own) || is_wide) return false;
  Quest& quest = store_.quest(layer, plan, n_tok_);
  if (plan.forces_own) {
    quest.append(store_.k(layer), store_.n_past(), n_tok_, work_.stream);
    quest.choose_before(q_rows_, store_.n_past(), n_tok_, work_.stream);
    const Index n_pages = pos_begin_ / plan.page_size;
    const Index n_whole = n_pages * plan.page_size;
    choice_ = {
        quest.lists_before(), /*per_row=*/false, /*adds_own=*/true,
        plan.page_size * pages_kept(plan.pages, plan.budget, plan.page_size, n_whole, n_pages) +
            pos_begin_ - n_whole};
    return true;
  }
  is_answered_ = quest.steps_in_one_kernel();
  if (is_answered_) {
    quest.step(rows_of(layer), answer_, lse_, work_.stream);
  } else {
    quest.append(store_.k(layer), store_.n_past(), n_tok_, work_.stream);
    quest.choose(q_rows_, store_.n_past(), work_.stream);
  }
  choice_ = {quest.lists(), /*per_row=*/false, /*adds_own=*/false};
  return true;
}

void CudaCall::attend_chosen(Index layer, const Block&, Block& out) {
  if (choice_.per_row) return attend_rows_lists(layer, out);
  if (!is_answered_) {
    const OwnKeys own = choice_.adds_own ? OwnKeys::causal : OwnKeys::in_list;
    gpu::attend(store_.call_shape(), rows_of(layer), choice_.lists, answer_, lse_, {own},
                work_.stream);
  }
  // a query always has its own key, or at least one page
  hand_on(layer, out);
}

void CudaCall::attend_rows_lists(Index layer, Block& out) {
  AnyAttention call = any_attention(layer, out);
  call.lists.keys = choice_.lists.items;
  call.lists.counts = choice_.lists.counts;
  call.lists.stride = choice_.lists.stride;
  call.lists.adds_own = choice_.adds_own;
  attend_any(call, work_.stream);
}

}  // namespace kvscope::gpu
