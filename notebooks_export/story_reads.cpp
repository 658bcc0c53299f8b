#include "notebooks_export/story_reads.hpp"

#include <algorithm>

#include "core/base/nan.hpp"

namespace kvscope {

WordReads::WordReads(const PlannedReads& plan, const TraceSource& trace, ThreadPool& pool,
                     const std::stop_token& stop)
    : plan_(plan),
      heavy_(heavy_keys(trace, plan.layer, plan.head, plan.queries, plan.most, pool, stop)),
      kept_(heavy_.keys.size(), 0),
      ruled_(heavy_.keys.size(), 0),
      masses_(static_cast<std::size_t>(plan.queries.size()) * plan.methods.size(), kNan) {}

void WordReads::put(std::size_t method, const KeptQueryRow& row) {
  if (row.pos < plan_.queries.begin || row.pos >= plan_.queries.end) return;
  const auto at = static_cast<std::size_t>(row.pos - plan_.queries.begin);
  const auto most = static_cast<std::size_t>(plan_.most);
  masses_[at * plan_.methods.size() + method] = row.mass;
  const auto bit = static_cast<std::uint8_t>(1U << method);
  for (std::size_t entry = at * most; entry < (at + 1) * most; ++entry) {
    const std::int32_t key = heavy_.keys[entry];
    if (key < 0 || !std::ranges::binary_search(row.keys, key)) continue;
    kept_[entry] |= bit;
    if (std::ranges::binary_search(row.ruled, key)) ruled_[entry] |= bit;
  }
}

std::string WordReads::encode() const {
  PageBytes bytes;
  for (std::size_t e = 0; e < heavy_.keys.size(); ++e) {
    bytes.put32(static_cast<std::uint32_t>(heavy_.keys[e]));
    bytes.put16(page_code(heavy_.weights[e]));
    bytes.put8(kept_[e]);
    bytes.put8(ruled_[e]);
  }
  return bytes.base64();
}

std::string WordReads::encode_masses() const {
  PageBytes bytes;
  for (const double mass : masses_) bytes.put16(share_code(mass));
  return bytes.base64();
}

double WordReads::encoded_bytes(const PlannedReads& plan) {
  return static_cast<double>(plan.queries.size()) *
         (static_cast<double>(plan.most) * 8.0 + 2.0 * static_cast<double>(plan.methods.size()));
}

}  // namespace kvscope
