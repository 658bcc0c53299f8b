// Tokenizers from a GGUF file's tables against the tokenizers library's ids of the same tables.
#include <map>
#include <nlohmann/json.hpp>

#include "core/model/gguf/derived_merges.hpp"
#include "core/model/tokenizer.hpp"
#include "tests/support/gguf_builder.hpp"
#include "tests/support/places.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gguf_tokenizer_test {

using nlohmann::json;
using testing::GgufBuilder;
using Ids = std::vector<TokenId>;

const std::filesystem::path kGolden = testing::source_dir() / "tests/golden/tokenizer";

json read_json(const std::string& name) {
  return json::parse(testing::read_file(kGolden / name));
}

// What a converter writes of a tokenizer.json: tokens by id, what kind each is, merges, BOS.
GgufBuilder tables_of(const json& tokenizer, const std::string& model, const std::string& pre) {
  std::map<int, std::string> by_id;
  for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) by_id[id.get<int>()] = token;
  std::map<int, float> kinds;
  for (const json& token : tokenizer["added_tokens"]) {
    by_id[token["id"].get<int>()] = token["content"].get<std::string>();
    kinds[token["id"].get<int>()] = token["special"].get<bool>() ? 3.0f : 4.0f;
  }
  std::vector<std::string> tokens;
  std::vector<float> types;
  for (const auto& [id, token] : by_id) {
    REQUIRE(id == static_cast<int>(tokens.size()));
    tokens.push_back(token);
    const bool is_byte = token.size() == 6 && token.starts_with("<0x");
    types.push_back(kinds.contains(id) ? kinds[id] : (is_byte ? 6.0f : 1.0f));
  }
  std::vector<std::string> merges;
  for (const json& merge : tokenizer["model"]["merges"]) {
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  GgufBuilder builder;
  builder.string("general.architecture", "llama").string("tokenizer.ggml.model", model);
  if (!pre.empty()) builder.string("tokenizer.ggml.pre", pre);
  return builder.strings("tokenizer.ggml.tokens", tokens)
      .numbers("tokenizer.ggml.token_type", types)
      .strings("tokenizer.ggml.merges", merges);
}

json family_json(const std::string& name) {
  for (const json& entry : read_json("families.json")) {
    if (entry.at("name") == name) return entry;
  }
  throw std::runtime_error("no family " + name);
}

Tokenizer load(const GgufBuilder& builder) {
  const TempDir dir;
  return Tokenizer::load(dir.write("t.gguf", builder.bytes()));
}

TEST_CASE("a file's own tables give the ids and texts of the tokenizers library") {
  struct Case {
    const char* family;
    const char* model;
    const char* pre;
  };
  const Case one =
      GENERATE(Case{"llama2", "llama", ""}, Case{"llama3", "gpt2", "llama-bpe"},
               Case{"qwen", "gpt2", "qwen2"}, Case{"o200k (gpt-oss)", "gpt2", "gpt-4o"});
  CAPTURE(one.family);
  const json entry = family_json(one.family);
  json tokenizer = read_json(entry.at("base").get<std::string>());
  if (entry.at("change").contains("added_tokens"))
    tokenizer["added_tokens"] = entry["change"]["added_tokens"];
  GgufBuilder builder = tables_of(tokenizer, one.model, one.pre);
  const bool is_llama = std::string_view(one.model) == "llama";
  const bool has_bos = std::string_view(one.family).starts_with("llama");
  builder.u32("tokenizer.ggml.unknown_token_id", 0);
  if (has_bos) builder.u32("tokenizer.ggml.bos_token_id", is_llama ? 1 : 0);
  const Tokenizer found = load(builder);
  for (const json& expected : entry.at("cases")) {
    CAPTURE(expected.at(0).dump());
    const auto ids = expected.at(1).get<Ids>();
    CHECK(found.encode(expected.at(0).get<std::string>(), /*add_special=*/true) == ids);
    if (expected.size() < 4) continue;
    CHECK(found.decode(ids) == expected.at(2).get<std::string>());
    CHECK(found.decode(ids, /*skip_special=*/true) == expected.at(3).get<std::string>());
  }
}

TEST_CASE("digits are pieces of their own where the file says smollm") {
  // A vocabulary in which "12" is a token: GPT-2's pieces use it, SmolLM's cannot.
  const auto tables = [](const char* pre) {
    return GgufBuilder()
        .string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", pre)
        .strings("tokenizer.ggml.tokens", {"1", "2", "12"})
        .strings("tokenizer.ggml.merges", {"1 2"});
  };
  CHECK(load(tables("gpt-2")).encode("12") == Ids{2});
  CHECK(load(tables("smollm")).encode("12") == Ids{0, 1});
  CHECK(load(tables("smollm")).encode("1x2") == Ids{0, 1});  // no token, no unknown: dropped
}

TEST_CASE("merges follow from scores: the best token first, the longest left part of it") {
  const std::vector<std::string> tokens = {"a", "b", "ab", "abb", "bb", "\u2581"};
  const std::vector<double> scores = {-9, -9, -2, -3, -1, -9};
  StringMap<TokenId> ids;
  for (std::size_t i = 0; i < tokens.size(); ++i) ids[tokens[i]] = static_cast<TokenId>(i);
  std::vector<std::array<TokenId, 3>> found;
  for (const auto& merge : merges_from_scores(tokens, scores, ids))
    found.push_back({merge.left, merge.right, merge.merged});
  // bb; ab; then abb as ab + b (longer left part), as a + bb.
  CHECK(found == std::vector<std::array<TokenId, 3>>{{1, 1, 4}, {0, 1, 2}, {2, 1, 3}, {0, 4, 3}});
}

TEST_CASE("SentencePiece tables: spaces, bytes, BOS, EOS, a template") {
  const auto tables = [] {
    return GgufBuilder()
        .string("general.architecture", "gemma3")
        .string("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens",
                 {"<unk>", "<s>", "</s>", "<0x0A>", "\u2581", "a", "b", "  ", "ab", "[x]"})
        .numbers("tokenizer.ggml.token_type", std::vector<float>{2, 3, 3, 6, 1, 1, 1, 4, 1, 4})
        .u32("tokenizer.ggml.bos_token_id", 1)
        .u32("tokenizer.ggml.eos_token_id", 2)
        .u32("tokenizer.ggml.unknown_token_id", 0)
        .string("tokenizer.chat_template", "{{ x }}");
  };
  const Tokenizer plain = load(tables().boolean("tokenizer.ggml.add_space_prefix", false));
  CHECK(plain.encode("ab", true) == Ids{1, 8});
  CHECK(plain.encode("a  b\n", true) == Ids{1, 5, 7, 6, 3});  // two spaces are one token
  CHECK(plain.encode("a[x]b</s>q", true) == Ids{1, 5, 9, 6, 2, 0});
  CHECK(plain.decode(Ids{5, 7, 6, 3}) == "a  b\n");
  CHECK(plain.chat_template() == "{{ x }}");
  const Tokenizer with_prefix = load(tables()
                                         .boolean("tokenizer.ggml.add_bos_token", false)
                                         .boolean("tokenizer.ggml.add_eos_token", true));
  CHECK(with_prefix.encode("ab", true) == Ids{4, 8, 2});
  CHECK(with_prefix.decode(Ids{4, 8}) == "ab");
}

TEST_CASE("tables that are broken or of another kind are refused by name") {
  const auto refused = [](const GgufBuilder& builder, const std::string& message) {
    CHECK_SAYS_AS(Error, load(builder), message);
  };
  const auto gpt2 = [] {
    return GgufBuilder()
        .string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", "llama-bpe");
  };
  const std::vector<std::string> tokens = {"a", "b", "ab"};
  refused(GgufBuilder(), "tokenizer.ggml.model");
  refused(GgufBuilder().string("tokenizer.ggml.model", "t5"), "the string \"t5\"");
  refused(GgufBuilder().string("tokenizer.ggml.model", "gpt2"),
          "expected one of gpt-2, olmo, phi-2, smollm, llama-bpe");
  refused(gpt2(), "tokenizer.ggml.tokens");
  refused(gpt2().strings("tokenizer.ggml.tokens", tokens), "tokenizer.ggml.merges");
  const auto merges = [&](const std::string& one) {
    return gpt2().strings("tokenizer.ggml.tokens", tokens).strings("tokenizer.ggml.merges", {one});
  };
  refused(merges("ab"), "tokenizer.ggml.merges[0]");
  refused(merges("a c"), "expected tokens of the vocabulary, found \"c\"");
  refused(merges("a b").numbers("tokenizer.ggml.token_type", std::vector<float>{1}),
          "expected a list of 3 numbers");
  refused(merges("a b").boolean("tokenizer.ggml.add_bos_token", true), "bos_token_id");
  refused(merges("a b").u32("tokenizer.ggml.bos_token_id", 3), "from 0 to 2, found the number 3");
  refused(gpt2().strings("tokenizer.ggml.tokens", {"\xff"}), "expected UTF-8");
  const auto spm = [&](std::vector<float> scores) {
    return GgufBuilder()
        .string("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", tokens)
        .numbers("tokenizer.ggml.scores", scores);
  };
  refused(spm({1, 2}), "expected a list of 3 numbers");
  refused(spm({1, 2, std::nanf("")}), "expected finite numbers");
}

}  // namespace kvscope::gguf_tokenizer_test
