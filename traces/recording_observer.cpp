#include "traces/recording_observer.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/attention/visible.hpp"
#include "traces/attention_rows.hpp"

namespace kvscope {

namespace {

constexpr Index kMaxBlockBytes = Index{64} << 20;  // of dense attention rows in memory at once

/// Heads `heads` of a view [all heads, n, ...]: a window where they lie side by side, else a copy
/// in `storage`.
template <class T>
TensorView<const T> select_heads(TensorView<const T> view, const std::vector<Index>& heads,
                                 Tensor<T>& storage) {
  if (heads.back() - heads.front() + 1 == static_cast<Index>(heads.size())) {
    return view.range(0, heads.front(), heads.back() + 1);
  }
  Shape shape = view.shape();
  shape.dim[0] = static_cast<Index>(heads.size());
  storage = Tensor<T>::uninitialized(shape);
  T* to = storage.data();
  const Index width = view.dim(view.rank() - 1);
  for (const Index head : heads)
    for_each_row(view.sub(head), [&](const T* row) { to = std::copy_n(row, width, to); });
  return std::as_const(storage).view();
}

TypedRows select_heads(TypedRows rows, const std::vector<Index>& heads,
                       Tensor<std::byte>& storage) {
  return {rows.dtype(), select_heads(rows.bytes(), heads, storage)};
}

/// Euclidean norms [heads, n] of rows [heads, n, d].
Tensor<float> norms_of(TensorView<const float> rows) {
  auto norms = Tensor<float>::uninitialized({rows.dim(0), rows.dim(1)});
  for (Index head = 0; head < rows.dim(0); ++head) {
    for (Index i = 0; i < rows.dim(1); ++i) {
      double sum = 0;
      for (const float x : rows.sub(head).row(i)) sum += static_cast<double>(x) * x;
      norms(head, i) = static_cast<float>(std::sqrt(sum));
    }
  }
  return norms;
}

struct PageBounds {
  Tensor<float> min, max;  // [heads, n_pages, d]
};

/// Channel minima and maxima of pages [first, last) of keys [heads, all, d].
PageBounds page_bounds(TensorView<const float> keys, Index page_size, Index first, Index last) {
  const Shape shape = {keys.dim(0), last - first, keys.dim(2)};
  PageBounds bounds{Tensor<float>::uninitialized(shape), Tensor<float>::uninitialized(shape)};
  for (Index head = 0; head < shape[0]; ++head) {
    for (Index page = first; page < last; ++page) {
      const auto low = bounds.min.sub(head).row(page - first);
      const auto high = bounds.max.sub(head).row(page - first);
      const auto start = keys.sub(head).row(page * page_size);
      std::copy(start.begin(), start.end(), low.begin());
      std::copy(start.begin(), start.end(), high.begin());
      for (Index i = 1; i < page_size; ++i) {
        const auto row = keys.sub(head).row(page * page_size + i);
        for (std::size_t c = 0; c < row.size(); ++c) {
          low[c] = std::min(low[c], row[c]);
          high[c] = std::max(high[c], row[c]);
        }
      }
    }
  }
  return bounds;
}

}  // namespace

TokenRange RecordingObserver::recorded_rows(Index pos_begin, Index n_tok) const {
  const Index end = pos_begin + n_tok;
  return {std::clamp(info_.rows.begin, pos_begin, end) - pos_begin,
          std::clamp(info_.rows.end, pos_begin, end) - pos_begin};
}

void RecordingObserver::on_attention(const AttentionEvent& event) {
  const TokenRange rows = recorded_rows(event.pos_begin, event.n_tok);
  Tensor<float> q_copy, k_copy, v_copy, lse_copy, cache_copy, q_norm, k_norm, before;
  PageBounds pages;

  CallRows out;
  const auto add = [&](const char* name, AnyRows part) {
    out.arrays.push_back({event.layer, name, part});
  };
  const auto q = select_heads(event.q.range(1, rows.begin, rows.end), info_.q_heads, q_copy);
  const auto k = select_heads(event.k, info_.kv_heads_of(event.layer), k_copy);
  if (info_.capture.qkv) {
    add("q", q);
    add("k", k);
    add("v", select_heads(event.v, info_.kv_heads_of(event.layer), v_copy));
  }
  if (info_.capture.lse)
    add("lse", select_heads(event.lse.range(1, rows.begin, rows.end), info_.q_heads, lse_copy));
  if (info_.capture.stats) {
    const Index page_size = info_.capture.page_size;
    const auto cache = select_heads(event.k_cache, info_.kv_heads_of(event.layer), cache_copy);
    q_norm = norms_of(q);
    k_norm = norms_of(k);
    pages = page_bounds(cache, page_size, event.pos_begin / page_size,
                        (event.pos_begin + event.n_tok) / page_size);
    add("stats/q_norm", q_norm.view());
    add("stats/k_norm", k_norm.view());
    add("stats/page_min", pages.min.view());
    add("stats/page_max", pages.max.view());
  }
  if (info_.capture.k_pre_rope && pre_rotary_ != nullptr) {
    before = pre_rotary_->before(event.layer, event.pos_begin, k);
    add("k_pre_rope", before.view());
  }
  receiver_.write(out);
  if (measures_) rounding_.add(event, pool_);
  if (info_.capture.attn_dense || info_.capture.attn_topk > 0) write_attention_rows(event, rows);
}

/// Everything but q, k, v and lse is made of floats, and of all keys so far.
std::optional<DType> RecordingObserver::rows_dtype(Index) const {
  const CaptureSet& capture = info_.capture;
  if (capture.stats || capture.attn_dense || capture.attn_topk > 0 || capture.k_pre_rope)
    return std::nullopt;
  return info_.dtype;
}

void RecordingObserver::on_rows(const RowsEvent& event) {
  const TokenRange rows = recorded_rows(event.pos_begin, event.n_tok);
  // Heads that do not lie side by side are copied; those copies last as long as the call.
  Tensor<std::byte> q_copy, k_copy, v_copy;
  Tensor<float> lse_copy;
  CallRows out;
  const auto add = [&](const char* name, AnyRows part) {
    out.arrays.push_back({event.layer, name, part});
  };
  if (info_.capture.qkv) {
    add("q", select_heads(event.q.range(1, rows.begin, rows.end), info_.q_heads, q_copy));
    add("k", select_heads(event.k, info_.kv_heads_of(event.layer), k_copy));
    add("v", select_heads(event.v, info_.kv_heads_of(event.layer), v_copy));
  }
  if (info_.capture.lse)
    add("lse", select_heads(event.lse.range(1, rows.begin, rows.end), info_.q_heads, lse_copy));
  const bool has_copies =
      q_copy.count() > 0 || k_copy.count() > 0 || v_copy.count() > 0 || lse_copy.count() > 0;
  if (!has_copies) out.memory = event.memory;
  receiver_.write(out);
  if (measures_) rounding_.add(event, pool_);
}

void RecordingObserver::write_attention_rows(const AttentionEvent& event, TokenRange rows) {
  const Index n_heads = static_cast<Index>(info_.q_heads.size());
  const Index n_keys = event.pos_begin + event.n_tok;
  const Index n_top = info_.capture.attn_topk;
  const bool dense = info_.capture.attn_dense;
  const Index row_bytes = n_heads * 4 * ((dense ? n_keys : 0) + 2 * n_top);
  const Index block = std::max<Index>(kMaxBlockBytes / std::max<Index>(row_bytes, 1), 1);
  const std::optional<Index> window = info_.window_of(event.layer);
  const Index group = info_.group(event.layer);

  struct Scratch {
    std::vector<float> probs;
    std::vector<std::int32_t> order;
  };
  std::vector<Scratch> scratch(static_cast<std::size_t>(pool_.n_threads()));
  for (Index first = rows.begin; first < rows.end; first += block) {
    const Index n = std::min(block, rows.end - first);
    Tensor<float> probs, top_prob;
    Tensor<std::int32_t> top_pos;
    if (dense) probs = Tensor<float>::uninitialized({n_heads, n, n_keys});
    if (n_top > 0) {
      top_pos = Tensor<std::int32_t>::uninitialized({n_heads, n, n_top});
      top_prob = Tensor<float>::uninitialized({n_heads, n, n_top});
    }
    pool_.parallel_for(n_heads * n, [&](Index task, int worker) {
      const Index slot = task / n;
      const Index i = task % n;
      const Index q_head = info_.q_heads[static_cast<std::size_t>(slot)];
      const Index pos = event.pos_begin + first + i;
      Scratch& mine = scratch[static_cast<std::size_t>(worker)];
      if (!dense) mine.probs.resize(static_cast<std::size_t>(n_keys));
      const std::span<float> row = dense ? probs.sub(slot).row(i) : std::span<float>(mine.probs);
      attention_row(event.q.sub(q_head).row(first + i), event.k_cache.sub(q_head / group), pos,
                    window, event.score_rule(), event.lse(q_head, first + i), row);
      if (n_top > 0) {
        largest_entries(row, visible_keys(pos, window).begin, pos + 1, mine.order,
                        top_pos.sub(slot).row(i), top_prob.sub(slot).row(i));
      }
    });
    CallRows out;
    if (dense) out.arrays.push_back({event.layer, "attn", probs.view()});
    if (n_top > 0) {
      out.arrays.push_back({event.layer, "topk_pos", top_pos.view()});
      out.arrays.push_back({event.layer, "topk_prob", top_prob.view()});
    }
    receiver_.write(out);
  }
}

void RecordingObserver::on_routing(const RoutingEvent& event) {
  if (!info_.capture.routing || !info_.has_layer(event.layer)) return;
  const TokenRange rows = recorded_rows(event.pos_begin, event.expert.dim(0));
  receiver_.write(
      {.arrays = {{event.layer, "experts", event.expert.range(0, rows.begin, rows.end)},
                  {event.layer, "expert_weights", event.weight.range(0, rows.begin, rows.end)}}});
}

void RecordingObserver::on_logits(Index pos_begin, TensorView<const float> logits) {
  if (!info_.capture.logits) return;
  const TokenRange rows = recorded_rows(pos_begin, logits.dim(0));
  if (rows.size() > 0)
    receiver_.write({.arrays = {{-1, "/logits", logits.range(0, rows.begin, rows.end)}}});
}

}  // namespace kvscope
