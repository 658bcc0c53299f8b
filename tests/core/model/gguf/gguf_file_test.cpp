// The header of GGUF files: what the `gguf` package wrote comes back, and damaged or hostile files
// are refused with a sentence. Values of every type against that package, bit by bit.
#include "core/model/gguf/gguf_file.hpp"

#include <bit>

#include "core/base/json_reader.hpp"
#include "support/golden.hpp"
#include "tests/support/gguf_builder.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gguf_file_test {

using testing::gguf_string;
using testing::GgufBuilder;
using testing::raw;

GgufFile parse(const std::string& bytes) {
  return parse_gguf(std::as_bytes(std::span(bytes)), "file.gguf");
}

void check_refused(const std::string& bytes, const std::string& message) {
  CHECK_SAYS_AS(FormatError, parse(bytes), message);
}

const TensorInFile& tensor_of(const GgufFile& file, std::string_view name) {
  for (const TensorInFile& tensor : file.tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::runtime_error("no tensor " + std::string(name));
}

TEST_CASE("every type widens to the bits of the gguf package") {
  const std::string bytes = testing::read_file(test::golden_dir() / "gguf/types.gguf");
  const GgufFile file = parse(bytes);
  REQUIRE(file.tensors.size() == 2 * kNumStoredTypes);
  for (int i = 0; i < kNumStoredTypes; ++i) {
    const auto type = static_cast<StoredType>(i);
    const std::string name(name_of(type));
    CAPTURE(name);
    const TensorInFile& stored = tensor_of(file, name);
    const TensorInFile& expected = tensor_of(file, name + ".f32");
    REQUIRE(stored.type == type);
    REQUIRE(stored.shape == std::vector<Index>{2, 512});
    REQUIRE(stored.bytes.size() == stored_bytes(type, 1024));
    std::vector<float> found(1024), wanted(1024);
    widen(type, stored.bytes.data(), found.data(), 1024);
    widen(StoredType::f32, expected.bytes.data(), wanted.data(), 1024);
    int n_different = 0;
    for (std::size_t k = 0; k < found.size(); ++k) {
      // Zeros may differ in their sign.
      if (found[k] == 0.0f && wanted[k] == 0.0f) continue;
      if (std::bit_cast<std::uint32_t>(found[k]) != std::bit_cast<std::uint32_t>(wanted[k]))
        ++n_different;
    }
    CHECK(n_different == 0);
  }
}

TEST_CASE("metadata of every type comes back") {
  const std::string bytes = testing::read_file(test::golden_dir() / "gguf/types.gguf");
  const GgufFile file = parse(bytes);
  CHECK(file.version == 3);
  const JsonObject meta(file.metadata, "file.gguf");
  CHECK(meta.integer("test.uint8", 0, 255) == 200);
  CHECK(meta.integer("test.int8", -128, 127) == -100);
  CHECK(meta.integer("test.uint16", 0, 65535) == 60000);
  CHECK(meta.integer("test.int16", -32768, 32767) == -30000);
  CHECK(meta.integer("test.uint32", 0, 4294967295) == 4000000000);
  CHECK(meta.integer("test.int32", -2147483648, 0) == -2000000000);
  CHECK(file.metadata.at("test.uint64") == std::uint64_t{1} << 63);
  CHECK(file.metadata.at("test.int64") == -(std::int64_t{1} << 62));
  CHECK(meta.number_if("test.float32") == 0.5);
  CHECK(meta.number_if("test.float64") == 1e-300);
  CHECK(meta.boolean_if("test.bool") == true);
  CHECK(meta.string("test.string") == "na\u00efve");
  CHECK(file.metadata.at("test.strings") == nlohmann::json{"a", "", "\u4e2d"});
  CHECK(gguf_numbers(meta, "test.numbers", 3) == std::vector<double>{3, 1, -2});
  CHECK_FALSE(meta.integer_if("test.none", 0, 1));
  CHECK_SAYS_AS(FormatError, meta.integer_if("test.uint64", 0, 5),
                "test.uint64 (file.gguf): expected an integer from 0 to 5, found the number 9223");
  CHECK_SAYS_AS(FormatError, meta.string_if("test.bool"), "expected a string, found true");
  CHECK_SAYS_AS(FormatError, gguf_numbers(meta, "test.strings", 3),
                "expected a list of 3 numbers, found a list of 3");
}

TEST_CASE("versions 2 and 3 are read, other files are told apart") {
  const GgufBuilder builder = GgufBuilder().u32("a", 7);
  CHECK(parse(builder.bytes(2)).metadata.at("a") == 7);
  check_refused(builder.bytes(1), "expected version 2 or 3 of GGUF, found version 1");
  check_refused(builder.bytes(0x03000000), "found a big-endian one");
  check_refused("PK\3\4 something", "expected a GGUF file");
  check_refused("", "expected a GGUF file");
  check_refused("GGU", "expected a GGUF file");
}

TEST_CASE("a file that is cut anywhere is refused") {
  const std::vector<float> values(64, 1.0f);
  const std::string whole = GgufBuilder()
                                .string("name", "value")
                                .strings("list", {"a", "bc"})
                                .numbers("numbers", std::vector<float>{1, 2, 3})
                                .tensor("t", {2, 32}, values)
                                .bytes();
  CHECK(parse(whole).tensors.size() == 1);
  for (std::size_t n = 0; n < whole.size(); ++n) {
    CAPTURE(n);
    CHECK_THROWS_AS(parse(whole.substr(0, n)), FormatError);
  }
}

TEST_CASE("hostile headers cost nothing") {
  const std::uint64_t huge = ~std::uint64_t{0};
  const std::vector<float> values(64, 1.0f);
  const auto header = [](std::uint64_t n_tensors, std::uint64_t n_fields) {
    return "GGUF" + raw(std::uint32_t{3}) + raw(n_tensors) + raw(n_fields);
  };
  check_refused(header(huge, 0), "18446744073709551615 tensors, expected at most 0");
  check_refused(header(0, huge) + std::string(140, '\0'),
                "18446744073709551615 metadata fields, expected at most 10");
  check_refused(header(0, 1) + raw(huge) + std::string(40, 'x'),
                "a string of 18446744073709551615 bytes");
  check_refused(GgufBuilder().field("a", 8, raw(huge)).bytes(), "a string of");
  check_refused(GgufBuilder().field("a", 13, "12345678").bytes(), "found type 13");
  check_refused(GgufBuilder().field("a", 9, raw(std::uint32_t{4}) + raw(huge)).bytes(),
                "18446744073709551615 values of a list");
  check_refused(GgufBuilder().field("a", 9, raw(std::uint32_t{9}) + raw(std::uint64_t{1})).bytes(),
                "found a list of values of type 9");
  check_refused(GgufBuilder().u32("a", 1).u32("a", 2).bytes(), "\"a\" is given twice");
  check_refused(GgufBuilder().tensor("t", {64}, values).tensor("t", {64}, values).bytes(),
                "tensor \"t\" is given twice");
  check_refused(GgufBuilder().u32("general.alignment", 48).bytes(), "expected a power of two");
  check_refused(GgufBuilder().u32("general.alignment", 0).bytes(), "1048576, found the number 0");
  check_refused(GgufBuilder().raw_tensor("t", 2, {2, 33}, std::string(60, 'x')).bytes(),
                "expected rows of a multiple of 32 values (Q4_0), found 33");
  check_refused(GgufBuilder().tensor("t", {1, 1, 1, 1, 1}, values).bytes(), "1 to 4 extents");
  check_refused(GgufBuilder().tensor("t", {0, 4}, values).bytes(), "found an extent of 0");
  check_refused(GgufBuilder().tensor("t", {Index{1} << 40, Index{1} << 40}, values).bytes(),
                "elements in all");
  check_refused(GgufBuilder().tensor("t", {65}, values).bytes(), "the file is truncated");
}

TEST_CASE("tensors lie apart, at aligned places") {
  const std::vector<float> values(64, 1.0f);
  const auto place = [&](std::uint64_t second) {
    std::string tensors;
    for (const std::uint64_t offset : {std::uint64_t{0}, second}) {
      tensors += gguf_string(offset == 0 ? "a" : "b") + raw(std::uint32_t{1}) +
                 raw(std::uint64_t{16}) + raw(std::uint32_t{0}) + raw(offset);
    }
    std::string bytes =
        "GGUF" + raw(std::uint32_t{3}) + raw(std::uint64_t{2}) + raw(std::uint64_t{0}) + tensors;
    bytes.resize((bytes.size() + 31) / 32 * 32);
    return bytes + std::string(256, '\1');
  };
  CHECK(parse(place(64)).tensors[1].bytes.size() == 64);
  CHECK(parse(place(192)).tensors.size() == 2);
  check_refused(place(32), "its bytes begin at 32, inside of tensor \"a\"");
  check_refused(place(65), "expected an offset that is a multiple of 32, found 65");
  check_refused(place(224), "do not fit into the 256 bytes of data");
  check_refused(place(std::uint64_t{1} << 63), "do not fit");
}

TEST_CASE("types that are not read are kept by name") {
  const GgufFile file = parse(GgufBuilder()
                                  .raw_tensor("a", 16, {256}, std::string(66, 'x'))
                                  .raw_tensor("b", 99, {256}, std::string(10, 'x'))
                                  .bytes());
  CHECK(file.tensors[0].type_name == "IQ2_XXS");
  CHECK_FALSE(file.tensors[0].type);
  CHECK(file.tensors[0].bytes.size() == 66);
  CHECK(file.tensors[1].type_name == "type 99");
}

}  // namespace kvscope::gguf_file_test
