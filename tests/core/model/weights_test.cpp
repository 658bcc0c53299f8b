// Weights from safetensors: every type and shape; broken and hostile headers.
#include "core/model/weights.hpp"

#include <fmt/format.h>

#include <array>

#include "tests/support/safetensors_builder.hpp"
#include "tests/support/test.hpp"

namespace kvscope::weights_test {

using testing::safetensors_bytes;
using testing::SafetensorsBuilder;

constexpr std::array<float, 6> kSix = {1.0f, -2.0f, 0.5f, 3.0f, 0.0f, -0.25f};

WeightFiles open_bytes(const TempDir& dir, std::string_view bytes) {
  dir.write("model.safetensors", bytes);
  return WeightFiles::open(dir.path());
}

// A file with this header and `n_data` data bytes must be refused with a sentence that holds
// `message`.
void check_refused(const std::string& header, std::size_t n_data, const std::string& message) {
  const TempDir dir;
  CAPTURE(header);
  CHECK_SAYS_AS(FormatError, open_bytes(dir, safetensors_bytes(header, std::string(n_data, '\0'))),
                message);
}

std::string tensor(std::string_view name, std::string_view dtype, std::string_view shape,
                   std::string_view offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                     offsets);
}

std::string header_of(const std::vector<std::string>& tensors) {
  return fmt::format("{{{}}}", fmt::join(tensors, ","));
}

TEST_CASE("tensors of all three types come back, unaligned ones too") {
  const TempDir dir;
  // The odd byte in front puts everything behind it on odd addresses.
  const WeightFiles weights = open_bytes(dir, SafetensorsBuilder()
                                                  .metadata(R"({"format":"pt"})")
                                                  .add_raw("odd", "U8", {1}, "x")
                                                  .add("f", DType::f32, {2, 3}, kSix)
                                                  .add("h", DType::f16, {3, 2}, kSix)
                                                  .add("b", DType::bf16, {6}, kSix)
                                                  .bytes());
  CHECK(weights.entries().size() == 4);
  CHECK(weights.n_parameters() == 19);
  CHECK(weights.n_bytes() == 1 + 24 + 12 + 12);
  CHECK(weights.contains("f"));
  CHECK_FALSE(weights.contains("g"));
  const std::array<std::pair<const char*, Shape>, 3> all = {
      {{"f", {2, 3}}, {"h", {3, 2}}, {"b", {6}}}};
  for (const auto& [name, shape] : all) {
    CAPTURE(name);
    const Tensor<float> values = weights.get_float(name, shape);
    CHECK(std::equal(kSix.begin(), kSix.end(), values.data()));
    CHECK(weights.get(name, shape).file == "model.safetensors");
  }
}

TEST_CASE("zero-size tensors, scalars and tensors of rank 5 are kept") {
  const TempDir dir;
  const WeightFiles weights = open_bytes(dir, SafetensorsBuilder()
                                                  .add("empty", DType::f32, {0, 7}, {})
                                                  .add("scalar", DType::f32, {}, std::array{2.5f})
                                                  .add("deep", DType::f32, {1, 1, 1, 2, 3}, kSix)
                                                  .add("empty2", DType::f32, {3, 0}, {})
                                                  .bytes());
  CHECK(weights.get_float("empty", {0, 7}).count() == 0);
  CHECK(weights.get_float("empty2", {3, 0}).count() == 0);
  CHECK(weights.get_float("scalar", {}).data()[0] == 2.5f);
  CHECK(weights.n_parameters() == 7);
  CHECK_SAYS_AS(FormatError, weights.get("deep", {2, 3}), "found [1, 1, 1, 2, 3]");
}

TEST_CASE("what a tensor is asked for and is not names tensor, expected, found and file") {
  const TempDir dir;
  const std::array<float, 2> bad = {1.0f, std::numeric_limits<float>::quiet_NaN()};
  const WeightFiles weights = open_bytes(dir, SafetensorsBuilder()
                                                  .add("f", DType::f32, {2, 3}, kSix)
                                                  .add("nan", DType::bf16, {2}, bad)
                                                  .add("inf", DType::f16, {1}, std::array{INFINITY})
                                                  .add_raw("int", "I32", {1}, "1234")
                                                  .add_raw("new", "F4_X", {3}, "12")
                                                  .bytes());
  CHECK_SAYS_AS(FormatError, weights.get("f", {3, 2}), "\"f\"", "expected shape [3, 2]",
                "found [2, 3]", "model.safetensors");
  CHECK_SAYS_AS(FormatError, weights.get("g", {1}), "\"g\"");
  CHECK_SAYS_AS(FormatError, weights.get("int", {1}), "\"I32\"");
  CHECK_SAYS_AS(FormatError, weights.get("new", {3}), "\"F4_X\"");
  CHECK_NOTHROW(weights.get("nan", {2}));
  CHECK_SAYS_AS(FormatError, weights.get_float("nan", {2}), "element 1", "nan");
  CHECK_THROWS_AS(weights.get_float("inf", {1}), FormatError);
}

TEST_CASE("broken lengths are refused before anything is read") {
  const TempDir dir;
  for (std::size_t n = 0; n < 8; ++n)
    CHECK_THROWS_AS(open_bytes(dir, std::string(n, '\0')), FormatError);
  for (std::uint64_t length : {std::uint64_t{1}, std::uint64_t{1} << 60, ~std::uint64_t{0}}) {
    CHECK_SAYS_AS(FormatError, open_bytes(dir, testing::little_endian_u64(length)),
                  std::to_string(length));
  }
  const std::string sound = SafetensorsBuilder().add("f", DType::f32, {2, 3}, kSix).bytes();
  for (std::size_t n = 0; n < sound.size(); ++n) {
    CAPTURE(n);
    CHECK_THROWS_AS(open_bytes(dir, sound.substr(0, n)), FormatError);
  }
  CHECK_THROWS_AS(open_bytes(dir, sound + "x"), FormatError);
  CHECK_NOTHROW(open_bytes(dir, sound));
}

TEST_CASE("broken headers are refused with a sentence") {
  check_refused("", 0, "expected JSON");
  check_refused("{", 0, "expected JSON");
  check_refused("[]", 0, "expected a JSON object");
  check_refused("null", 0, "expected a JSON object");
  check_refused("{\"a\":1}", 0, "expected a JSON object, found the number 1");
  check_refused("{\"\xff\":1}", 0, "expected JSON");
  check_refused(header_of({tensor("a", "F32", "[1]", "[0,4]"), tensor("a", "F32", "[1]", "[4,8]")}),
                8, "\"a\" occurs twice");
  check_refused(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4,
                "occurs twice");
  check_refused(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "dtype");
  check_refused(R"({"a":{"dtype":5,"shape":[1],"data_offsets":[0,4]}})", 4, "expected a string");
  check_refused(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4,
                "expected a list, found nothing");
  check_refused(R"({"__metadata__":[]})", 0, "__metadata__");
  check_refused(R"({"__metadata__":{"a":1}})", 0, "expected a string");
}

TEST_CASE("broken shapes are refused with a sentence") {
  for (const char* shape :
       {"[-1]", "[1.0]", "[null]", "[\"1\"]", "[[1]]", "[NaN]", "[1e30]", "{}", "1",
        "[18446744073709551616]", "[9223372036854775807]", "[18446744073709551615]"}) {
    const std::string header = header_of({tensor("a", "F32", shape, "[0,4]")});
    const TempDir dir;
    CAPTURE(shape);
    CHECK_THROWS_AS(open_bytes(dir, safetensors_bytes(header, "1234")), FormatError);
  }
  // 2^32 * 2^32 elements wrap to 0, 2^62 elements of 4 bytes wrap to 0.
  check_refused(header_of({tensor("a", "F32", "[4294967296,4294967296]", "[0,0]")}), 0, "elements");
  check_refused(header_of({tensor("a", "F32", "[4611686018427387904]", "[0,0]")}), 0, "extents");
  check_refused(header_of({tensor("a", "F32", "[1152921504606846975]", "[0,0]")}), 0,
                "do not fill");
  check_refused(header_of({tensor("a", "X", "[100]", "[0,4]")}), 4, "do not fill");
  check_refused(header_of({tensor("a", "F32", "[2]", "[0,4]")}), 4, "do not fill the 4 bytes");
  // with more bytes than its shape has elements, a shape that was written wrong would be read
  check_refused(header_of({tensor("a", "F32", "[1]", "[0,8]")}), 8, "do not fill the 8 bytes");
  check_refused(header_of({tensor("a", "BF16", "[3]", "[0,8]")}), 8, "do not fill the 8 bytes");
  check_refused(header_of({tensor("a", "F32", "[0]", "[0,4]")}), 4, "do not fill the 4 bytes");
}

TEST_CASE("broken offsets are refused with a sentence") {
  for (const char* offsets :
       {"[0,5]", "[-1,4]", "[0.0,4.0]", "[NaN,4]", "[0]", "[0,4,8]", "[]", "{}", "4", "[4,0]",
        "[null,4]", "[0,18446744073709551616]", "[0,18446744073709551615]",
        "[9223372036854775808,9223372036854775812]", "[\"0\",\"4\"]"}) {
    const std::string header = header_of({tensor("a", "F32", "[1]", offsets)});
    const TempDir dir;
    CAPTURE(offsets);
    CHECK_THROWS_AS(open_bytes(dir, safetensors_bytes(header, "1234")), FormatError);
  }
  check_refused(header_of({tensor("a", "F32", "[1]", "[0,4]"), tensor("b", "F32", "[1]", "[2,6]")}),
                6, "overlap");
  check_refused(header_of({tensor("a", "F32", "[1]", "[0,4]"), tensor("b", "F32", "[1]", "[0,4]")}),
                4, "overlap");
  check_refused(header_of({tensor("a", "F32", "[1]", "[0,4]"), tensor("b", "F32", "[1]", "[5,9]")}),
                9, "gap");
  check_refused(header_of({tensor("a", "F32", "[1]", "[1,5]")}), 5, "gap");
  check_refused(header_of({tensor("a", "F32", "[1]", "[0,4]")}), 5,
                "tensors fill 4 bytes, expected all 5");
}

TEST_CASE("a hostile tensor name is escaped and cut in messages") {
  const std::string name = "\\u001b[31m" + std::string(500, 'n');
  const TempDir dir;
  const auto bytes = safetensors_bytes(header_of({tensor(name, "F32", "[2]", "[0,4]")}), "1234");
  try {
    open_bytes(dir, bytes);
    FAIL("no exception");
  } catch (const FormatError& error) {
    const std::string message = error.what();
    CHECK(message.find('\x1b') == std::string::npos);
    CHECK(message.size() < 400);
  }
}

TEST_CASE("shards are found through the index") {
  const TempDir dir;
  dir.write("one.safetensors", SafetensorsBuilder().add("a", DType::f32, {6}, kSix).bytes());
  dir.write("two.safetensors", SafetensorsBuilder().add("b", DType::f32, {6}, kSix).bytes());
  const auto open_index = [&](const std::string& map) {
    dir.write("model.safetensors.index.json",
              R"({"metadata":{"total_size":48},"weight_map":)" + map + "}");
    return WeightFiles::open(dir.path());
  };
  const std::string sound = R"({"a":"one.safetensors","b":"two.safetensors"})";
  {
    const WeightFiles weights = open_index(sound);
    CHECK(weights.n_parameters() == 12);
    CHECK(weights.get("b", {6}).file == "two.safetensors");
  }
  SECTION("a missing shard") {
    CHECK_SAYS_AS(IoError, open_index(R"({"a":"one.safetensors","b":"three.safetensors"})"),
                  "three.safetensors");
  }
  SECTION("a tensor that is not in its shard") {
    CHECK_SAYS_AS(FormatError, open_index(R"({"a":"one.safetensors","c":"two.safetensors"})"),
                  "\"c\"", "nowhere");
    CHECK_THROWS_AS(open_index(R"({"a":"two.safetensors","b":"one.safetensors"})"), FormatError);
  }
  SECTION("a tensor in two shards") {
    dir.write("two.safetensors", SafetensorsBuilder()
                                     .add("a", DType::f32, {6}, kSix)
                                     .add("b", DType::f32, {6}, kSix)
                                     .bytes());
    CHECK_SAYS_AS(FormatError, open_index(sound), "in two shards");
  }
  SECTION("names that lead out of the folder") {
    for (const char* name :
         {"../one.safetensors", "/etc/passwd", "a/b", "..", ".", "", "a\\\\b", "a\\u0000b"}) {
      CAPTURE(name);
      CHECK_SAYS_AS(FormatError, open_index(fmt::format(R"({{"a":"{}"}})", name)), "same folder");
    }
  }
  SECTION("an index that is none") {
    for (const char* map : {"[]", "{}", "null", "1", R"({"a":1})", R"({"a":null})"}) {
      CAPTURE(map);
      CHECK_THROWS_AS(open_index(map), FormatError);
    }
    dir.write("model.safetensors.index.json", "");
    CHECK_THROWS_AS(WeightFiles::open(dir.path()), FormatError);
  }
}

TEST_CASE("a folder without weights is an IoError") {
  const TempDir dir;
  CHECK_SAYS_AS(IoError, WeightFiles::open(dir.path()), "model.safetensors.index.json");
  CHECK_THROWS_AS(WeightFiles::open(dir.path() / "missing"), IoError);
  std::filesystem::create_directory(dir.path() / "model.safetensors");
  CHECK_THROWS_AS(WeightFiles::open(dir.path()), IoError);
}

}  // namespace kvscope::weights_test
