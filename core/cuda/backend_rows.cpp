// Rows that a call hands out while it goes on computing: copied in a stream of their own into a
// ring of host memory.
#include <cstring>

#include "core/cuda/backend_call.hpp"

namespace kvscope::gpu {

namespace {

constexpr const char* kRowsUse = "rows for the host";

std::size_t aligned(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

}  // namespace

/// Room for one layer's rows. Where none is left the oldest rows are given, whose reader may then
/// let older ones go.
HostSlot CudaCall::slot_of(std::size_t bytes) {
  HostSlot slot = work_.outbox.ring->try_take(bytes);
  while (!slot && !parcels_.empty()) {
    give_first();
    slot = work_.outbox.ring->try_take(bytes);
  }
  return slot ? slot : work_.outbox.ring->take(bytes);
}

void CudaCall::give_first() {
  const Parcel parcel = std::move(parcels_.front());
  parcels_.pop_front();
  parcel.copied.wait();
  BadPlace bad = kNowhere;
  std::memcpy(&bad, parcel.bad, sizeof(bad));
  if (bad != kNowhere) work_.wait_and_check();  // throws
  parcel.give(parcel.rows);
}

void CudaCall::deliver() {
  while (!parcels_.empty()) give_first();
}

bool CudaCall::hand_out(Index layer, DType dtype, std::function<void(const RowsEvent&)> give) {
  while (!parcels_.empty() && parcels_.front().copied.is_passed()) give_first();

  const Index d = config_.d_head;
  const auto bytes_of = [&](Index n_heads) {
    return aligned(static_cast<std::size_t>(n_heads * n_tok_ * d) * kvscope::size_of(dtype));
  };
  const std::size_t lse_bytes = static_cast<std::size_t>(config_.n_q * n_tok_) * sizeof(float);
  const std::size_t row_bytes = bytes_of(config_.n_q) + 2 * bytes_of(config_.n_kv);
  Outbox& box = work_.outbox;
  Parcel parcel;
  parcel.memory = slot_of(row_bytes + aligned(lse_bytes) + sizeof(BadPlace));
  const bool converts = dtype != store_.dtype();
  std::byte* staged =
      converts ? box.converted.room<std::byte>(static_cast<Index>(row_bytes), kRowsUse) : nullptr;

  box.computed.record(work_.stream);
  box.computed.hold_back(box.stream);
  std::byte* to = parcel.memory.get();
  const auto copied = [&](const std::byte* from, Index capacity, Index n_heads) {
    const std::size_t width = static_cast<std::size_t>(n_tok_ * d) * kvscope::size_of(dtype);
    if (converts) {
      convert_rows({from, store_.dtype(), capacity * d, staged, dtype, n_tok_ * d,
                    static_cast<int>(n_heads)},
                   box.stream);
      copy_to_host(to, staged, width * static_cast<std::size_t>(n_heads), box.stream);
      staged += bytes_of(n_heads);
    } else {
      const std::size_t pitch = static_cast<std::size_t>(capacity * d) * kvscope::size_of(dtype);
      copy_pieces(to, from, {width, static_cast<std::size_t>(n_heads), width, pitch}, box.stream);
    }
    const TypedRows rows(dtype, to, Shape{n_heads, Index{n_tok_}, d});
    to += bytes_of(n_heads);
    return rows;
  };
  const std::size_t first =
      static_cast<std::size_t>(pos_begin_ * d) * kvscope::size_of(store_.dtype());
  RowsEvent& rows = parcel.rows;
  rows.layer = layer;
  rows.pos_begin = pos_begin_;
  rows.n_tok = n_tok_;
  rows.q = copied(q_rows_, n_tok_, config_.n_q);
  rows.k = copied(store_.k(layer) + first, store_.capacity(), config_.n_kv);
  rows.v = copied(store_.v(layer) + first, store_.capacity(), config_.n_kv);
  copy_to_host(to, lse_, lse_bytes, box.stream);
  rows.lse = {reinterpret_cast<const float*>(to), Shape{config_.n_q, Index{n_tok_}}};
  to += aligned(lse_bytes);
  copy_to_host(to, work_.bad.data(), sizeof(BadPlace), box.stream);
  parcel.bad = reinterpret_cast<const BadPlace*>(to);
  rows.memory = parcel.memory;
  parcel.copied.record(box.stream);
  box.copied.record(box.stream);
  box.is_copying = true;
  parcel.give = std::move(give);
  parcels_.push_back(std::move(parcel));
  return true;
}

}  // namespace kvscope::gpu
