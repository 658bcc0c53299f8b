// The fingerprint of a checkpoint: what changes it, and what must not.
#include "core/model/model_hash.hpp"

#include "tests/support/safetensors_builder.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::model_hash_test {

using testing::SafetensorsBuilder;

const std::vector<float> kLong(100'000, 0.5f);  // 400 kB in f32: more than both ends

struct Parts {
  std::string config = "{}";
  std::string tokenizer = "{\"model\":1}";
  std::vector<float> values = kLong;
  DType dtype = DType::f32;
  std::vector<Index> shape = {100'000};
  std::string name = "w";

  std::string hash() const {
    const TempDir dir;
    dir.write("config.json", config);
    if (!tokenizer.empty()) dir.write("tokenizer.json", tokenizer);
    dir.write("model.safetensors", SafetensorsBuilder()
                                       .add("a", DType::f32, {1}, std::vector{1.0f})
                                       .add(name, dtype, shape, values)
                                       .bytes());
    return model_hash(dir.path());
  }
};

Parts with_value(std::size_t at) {
  Parts parts;
  parts.values[at] = 0.25f;
  return parts;
}

TEST_CASE("a model's hash is that of its contents") {
  const std::string hash = Parts().hash();
  CHECK(hash.starts_with("xxh128:"));
  CHECK(hash.size() == 7 + 32);
  CHECK(Parts().hash() == hash);  // in another folder
  std::vector<Parts> others = {with_value(0), with_value(16'383), with_value(100'000 - 16'384),
                               with_value(99'999)};
  others.emplace_back().config = "{ }";
  others.emplace_back().tokenizer = "{\"model\":2}";
  others.emplace_back().tokenizer = "";
  others.emplace_back().dtype = DType::bf16;
  others.emplace_back().shape = {1000, 100};
  others.emplace_back().name = "x";
  std::vector<std::string> hashes = {hash};
  for (const Parts& other : others) {
    for (const std::string& known : hashes) CHECK(other.hash() != known);
    hashes.push_back(other.hash());
  }
}

TEST_CASE("how tensors are divided into files does not show in a model's hash") {
  const std::vector<float> one = {1.0f}, two = {2.0f, 3.0f};
  const TempDir whole;
  whole.write("config.json", "{}");
  whole.write(
      "model.safetensors",
      SafetensorsBuilder().add("b", DType::f32, {1}, one).add("a", DType::f32, {2}, two).bytes());
  const TempDir divided;
  divided.write("config.json", "{}");
  divided.write("1.safetensors", SafetensorsBuilder().add("a", DType::f32, {2}, two).bytes());
  divided.write("2.safetensors", SafetensorsBuilder().add("b", DType::f32, {1}, one).bytes());
  divided.write("model.safetensors.index.json",
                R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  CHECK(model_hash(whole.path()) == model_hash(divided.path()));
}

}  // namespace kvscope::test::model_hash_test
