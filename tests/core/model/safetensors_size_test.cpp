// A tensor has exactly the bytes of its shape: with more of them, a shape that was written wrong
// would be read as another tensor.
#include <span>

#include "core/model/safetensors.hpp"
#include "support/safetensors_builder.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::safetensors_size_test {

std::vector<SafetensorsEntry> parse(const std::string& header, std::size_t n_data) {
  const std::string bytes = testing::safetensors_bytes(header, std::string(n_data, '\0'));
  return parse_safetensors(std::as_bytes(std::span(bytes)), "a.safetensors");
}

std::string one(const char* dtype, const char* shape, std::size_t end) {
  return std::string(R"({"a":{"dtype":")") + dtype + R"(","shape":)" + shape +
         R"(,"data_offsets":[0,)" + std::to_string(end) + "]}}";
}

TEST_CASE("a tensor with more bytes than its shape has elements is refused, as with fewer") {
  CHECK(parse(one("F32", "[2]", 8), 8).front().count == 2);
  CHECK_SAYS(parse(one("F32", "[1]", 8), 8), "do not fill the 8 bytes");
  CHECK_SAYS(parse(one("BF16", "[3]", 8), 8), "do not fill the 8 bytes");
  CHECK_SAYS(parse(one("F32", "[0]", 4), 4), "do not fill the 4 bytes");
  CHECK_SAYS(parse(one("F32", "[]", 8), 8), "do not fill the 8 bytes");
  CHECK_SAYS(parse(one("F32", "[3]", 8), 8), "do not fill the 8 bytes");
}

}  // namespace kvscope::test::safetensors_size_test
