// Checksums and fingerprints (XXH3): of recorded pieces, of whole traces, of configurations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/trace/info.hpp"

namespace kvscope {

/// XXH3-64 of bytes that arrive in pieces.
class Checksum {
 public:
  Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;
  ~Checksum();
  void reset();
  void add(const void* data, std::size_t n_bytes);
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// XXH128 of the text, 32 hexadecimal digits.
std::string hash_text(std::string_view text);

/// "xxh128:" and the hash of all bytes of a regular file. Throws IoError if it cannot be read.
std::string hash_file(const std::filesystem::path& file);

/// What a trace holds, in one name: "xxh128:" and XXH128 (32 hexadecimal digits) over the
/// shape-defining metadata, the tokens and the checksum tables (in the order of
/// schema::trace_arrays, then that of the token text, if any).
std::string hash_contents(const TraceInfo& info, std::span<const std::int32_t> tokens,
                          const std::vector<std::vector<std::uint64_t>>& checksums,
                          const std::vector<std::uint64_t>& text_checksums);
/// The same with tables that are asked for one after the other, so that they need not be in memory
/// together.
std::string hash_contents(const TraceInfo& info, std::span<const std::int32_t> tokens,
                          std::size_t n_tables,
                          const std::function<std::vector<std::uint64_t>(std::size_t)>& table,
                          const std::vector<std::uint64_t>& text_checksums);

/// A version-8 UUID derived from contents and provenance: two recordings differ in `created`; where
/// that is pinned (SOURCE_DATE_EPOCH), equal recordings have equal uuids.
std::string derive_uuid(const TraceInfo& info);

/// Now in UTC, "2026-01-31T12:00:00Z"; the time in SOURCE_DATE_EPOCH instead, if that is set to a
/// number.
std::string timestamp();

/// XXH3-64 of what a trace keeps of its model beside the header's numbers: config.json, then
/// layer_kinds as they are stored (pairs of i64), then rope_frequencies and rope_amplitudes (f32).
std::uint64_t model_checksum(const TraceInfo& info);

}  // namespace kvscope
