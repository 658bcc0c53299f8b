// Tokenizers with the structure of the published model families against the tokenizers library.
//
// families.json: per family a base file, the parts that differ from it, and what tokenizers 0.23
// makes of awkward texts: ids with special tokens, text with them, text without them.
#include <map>
#include <nlohmann/json.hpp>

#include "core/model/tokenizer.hpp"
#include "tests/support/places.hpp"
#include "tests/support/test.hpp"

namespace kvscope::tokenizer_families_test {

using nlohmann::json;
using Ids = std::vector<TokenId>;

const std::filesystem::path kGolden = testing::source_dir() / "tests/golden/tokenizer";

json read_json(const std::string& name) {
  return json::parse(testing::read_file(kGolden / name));
}

Tokenizer parse(const json& tokenizer) {
  return Tokenizer::parse(tokenizer.dump(), "tokenizer.json");
}

// The vocabulary without the fallback bytes above `last`, numbered anew in the same order.
json without_bytes_above(const json& vocab, const std::string& last) {
  std::map<int, std::string> by_id;
  for (const auto& [token, id] : vocab.items()) {
    if (!(token.starts_with("<0x") && token > last)) by_id[id.get<int>()] = token;
  }
  json kept = json::object();
  for (const auto& [id, token] : by_id) kept[token] = kept.size();
  return kept;
}

Tokenizer family(const json& entry) {
  json tokenizer = read_json(entry.at("base").get<std::string>());
  for (const auto& [field, value] : entry.at("change").items()) {
    json& model = tokenizer["model"];
    if (field == "model") {
      model.update(value);
    } else if (field == "drop_bytes_above") {
      model["vocab"] = without_bytes_above(model["vocab"], value.get<std::string>());
    } else {
      tokenizer[field] = value;
    }
  }
  return parse(tokenizer);
}

TEST_CASE("every family's tokenizer gives the ids and texts of the tokenizers library") {
  const json families = read_json("families.json");
  REQUIRE(families.size() == 11);
  for (const json& entry : families) {
    CAPTURE(entry.at("name").get<std::string>());
    const Tokenizer tokenizer = family(entry);
    for (const json& one : entry.at("cases")) {
      CAPTURE(one.at(0).dump());
      const auto ids = one.at(1).get<Ids>();
      CHECK(tokenizer.encode(one.at(0).get<std::string>(), /*add_special=*/true) == ids);
      if (one.size() < 4) continue;
      CHECK(tokenizer.decode(ids) == one.at(2).get<std::string>());
      CHECK(tokenizer.decode(ids, /*skip_special=*/true) == one.at(3).get<std::string>());
    }
  }
}

TEST_CASE("pieces of a SentencePiece-style tokenizer are text, not its spelling") {
  const Tokenizer tokenizer = parse(read_json("sentencepiece.json"));
  std::string text;
  for (const TokenId id : tokenizer.encode("the \xe4\xb8\xad\n")) text += tokenizer.bytes_of(id);
  CHECK(text == " the \xe4\xb8\xad\n");  // the prefix is part of the first token
  CHECK(tokenizer.bytes_of(3 + 0x0a) == "\n");
  CHECK(tokenizer.bytes_of(1) == "<s>");
  CHECK(tokenizer.id_of("<s>") == 1);
  CHECK(tokenizer.id_of("<0x0A>") == 3 + 0x0a);
}

TEST_CASE("a megabyte without a cut is merged in well under quadratic time") {
  const Tokenizer tokenizer = parse(read_json("sentencepiece.json"));
  for (const std::string unit : {"a", "the ", " ", "\xe4\xb8\xad", "\n"}) {
    std::string text = "x";
    while (text.size() < 1000000) text += unit;
    CAPTURE(json(unit).dump());
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
  }
}

TEST_CASE("other normalizers, pre-tokenizers and decoders are refused by name") {
  const json base = read_json("sentencepiece.json");
  const auto check_refused = [&](const char* field, const json& value, const char* message) {
    json tokenizer = base;
    tokenizer[field] = value;
    CAPTURE(field, value.dump());
    CHECK_SAYS_AS(Error, parse(tokenizer), message, "tokenizer.json");
  };
  check_refused("normalizer", {{"type", "Lowercase"}}, "NFC, NFKC, Prepend or Replace");
  check_refused("normalizer",
                {{"type", "Replace"}, {"pattern", {{"Regex", "a+"}}}, {"content", ""}}, "a String");
  check_refused("normalizer", {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", ""}},
                "at least one character");
  check_refused("normalizer", {{"type", "Prepend"}}, "prepend");
  check_refused("pre_tokenizer", {{"type", "Whitespace"}}, "Metaspace or ByteLevel");
  check_refused("pre_tokenizer", {{"type", "Metaspace"}, {"replacement", ""}}, "one character");
  check_refused("pre_tokenizer",
                {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "last"}},
                "always, first or never");
  check_refused("decoder", nullptr, "expected one of Sequence");
  check_refused("decoder", {{"type", "ByteLevel"}}, "ByteFallback");
  check_refused("decoder", {{"type", "WordPiece"}}, "ByteFallback");
  check_refused("decoder", {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}},
                "Strip behind Fuse");
}

}  // namespace kvscope::tokenizer_families_test
