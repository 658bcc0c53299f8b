#include "traces/hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>

#include "core/base/mapped_file.hpp"

namespace kvscope {

/// The state of one hash whose bytes arrive in pieces.
struct Checksum::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {}
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;
Checksum::~Checksum() = default;
void Checksum::reset() {
  XXH3_64bits_reset(state_->xxh);
}
void Checksum::add(const void* data, std::size_t n_bytes) {
  XXH3_64bits_update(state_->xxh, data, n_bytes);
}
std::uint64_t Checksum::value() const {
  return XXH3_64bits_digest(state_->xxh);
}

namespace {

std::string hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

template <class T>
void append_bytes(std::string& out, std::span<const T> values) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

}  // namespace

std::string hash_text(std::string_view text) {
  return hex(XXH3_128bits(text.data(), text.size()));
}

std::string hash_file(const std::filesystem::path& file) {
  return "xxh128:" + hash_text(MappedFile(file).text());
}

std::string hash_contents(const TraceInfo& info, std::span<const std::int32_t> tokens,
                          const std::vector<std::vector<std::uint64_t>>& checksums,
                          const std::vector<std::uint64_t>& text_checksums) {
  return hash_contents(
      info, tokens, checksums.size(), [&](std::size_t i) { return checksums[i]; }, text_checksums);
}

std::string hash_contents(const TraceInfo& info, std::span<const std::int32_t> tokens,
                          std::size_t n_tables,
                          const std::function<std::vector<std::uint64_t>(std::size_t)>& table,
                          const std::vector<std::uint64_t>& text_checksums) {
  std::string block = fmt::format(
      "kvscope-trace 1\nmodel {} {} {} {} {} {} {}\nscale {:.9g}\nrope {} {:.17g} {:.17g}\ndtype "
      "{}\n"
      "tokens {} {}\nrows {} {}\nlayers {}\nq_heads {}\nkv_heads {}\n",
      info.model_family, info.n_layers, info.n_q, info.n_kv, info.d_head, info.d_model,
      info.n_vocab, info.score_scale, info.rope_kind, info.rope_theta, info.rope_factor,
      enum_name(info.dtype), info.n_tokens, info.n_prompt, info.rows.begin, info.rows.end,
      fmt::join(info.layers, ","), fmt::join(info.q_heads, ","), fmt::join(info.kv_heads, ","));
  if (info.score_cap > 0.0f) block += fmt::format("cap {:.9g}\n", info.score_cap);  // as with sinks
  for (const LayerShape& shape : info.layer_shapes) {
    block += fmt::format("layer {} {} {:.9g} {:.9g} {}\n", shape.n_kv, shape.d_head,
                         shape.score_scale, shape.score_cap, shape.keys_of);
  }
  for (const auto& window : info.window) block += fmt::format("window {}\n", window.value_or(0));
  if (!info.sink_logits.empty()) {  // traces without them keep the hash that they always had
    block += "sinks\n";
    append_bytes(block, std::span<const float>(info.sink_logits));
  }
  if (!info.index.empty()) {
    const IndexShape& index = info.index;
    block += fmt::format("index {} {} {} {} {} {} {} layers {}\n", index.n_heads, index.n_key_heads,
                         index.width, index.has_gates ? 1 : 0, index.n_lists, index.n_selected,
                         index.block, fmt::join(index.layers, ","));
  }
  for (const ForwardCall& call : info.calls) {  // "unit": part of every file's hash
    block +=
        fmt::format("unit {} {} {}\n", call.tokens.begin, call.tokens.end, call.is_decode ? 1 : 0);
  }
  append_bytes(block, tokens);
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  if (state == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state.get());
  XXH3_128bits_update(state.get(), block.data(), block.size());
  for (std::size_t i = 0; i < n_tables; ++i) {
    const std::vector<std::uint64_t> values = table(i);
    XXH3_128bits_update(state.get(), values.data(), values.size() * sizeof values[0]);
  }
  XXH3_128bits_update(state.get(), text_checksums.data(),
                      text_checksums.size() * sizeof text_checksums[0]);
  return "xxh128:" + hex(XXH3_128bits_digest(state.get()));
}

std::uint64_t model_checksum(const TraceInfo& info) {
  Checksum checksum;
  checksum.add(info.model_config.data(), info.model_config.size());
  for (const LayerKind& kind : info.layer_kinds) {
    const std::int64_t pair[2] = {kind.has_rope ? 1 : 0, kind.n_experts};
    checksum.add(pair, sizeof pair);
  }
  for (const auto* numbers : {&info.rope_frequencies, &info.rope_amplitudes})
    checksum.add(numbers->data(), numbers->size() * sizeof(float));
  return checksum.value();
}

std::string derive_uuid(const TraceInfo& info) {
  std::string digits =
      hash_text(fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n", info.content_hash, info.model_name,
                            info.created, info.writer, info.host, info.command_line, info.seed));
  digits[12] = '8';                                            // version
  digits[16] = "89ab"[static_cast<unsigned>(digits[16]) % 4];  // variant
  return fmt::format("{}-{}-{}-{}-{}", digits.substr(0, 8), digits.substr(8, 4),
                     digits.substr(12, 4), digits.substr(16, 4), digits.substr(20));
}

std::string timestamp() {
  std::time_t now = std::time(nullptr);
  if (const char* pinned = std::getenv("SOURCE_DATE_EPOCH")) {
    long long seconds = 0;
    const char* end = pinned + std::strlen(pinned);
    const auto parsed = std::from_chars(pinned, end, seconds);
    if (parsed.ec == std::errc() && parsed.ptr == end) now = static_cast<std::time_t>(seconds);
  }
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[40];
  const std::size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return std::string(text, n);
}

}  // namespace kvscope
