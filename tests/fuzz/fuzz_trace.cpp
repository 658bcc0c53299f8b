// Fuzzes the reader of trace files with whole files in memory: errors of ours are fine, crashes are
// not.

#include <cstdint>
#include <span>

#include "core/base/error.hpp"
#include "traces/reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvscope;
  try {
    const TraceFile trace = TraceFile::open_image(std::as_bytes(std::span(data, size)), "fuzz",
                                                  {.allow_partial = true, .check_data = false});
    const TraceInfo& info = trace.info();
    (void)trace.token_bytes();
    if (info.n_tokens == 0) return 0;
    const TokenRange first = {info.rows.begin, info.rows.begin + (info.rows.size() > 0 ? 1 : 0)};
    for (const Index layer : info.layers) {
      if (info.capture.qkv) {
        (void)trace.read_q(layer, info.q_heads.front(), first);
        (void)trace.read_k(layer, info.kv_heads.back(), {info.n_tokens - 1, info.n_tokens});
      }
      if (info.capture.attn_topk > 0) (void)trace.read_topk(layer, info.q_heads.back(), first);
    }
  } catch (const Error&) {
  }
  return 0;
}
