// tokenizer.model and tekken.json against the ids of sentencepiece and mistral-common
// (tests/golden/tokenizer/make_pieces.py), and files that are broken.
#include <nlohmann/json.hpp>

#include "core/model/sentencepiece/character_map.hpp"
#include "core/model/tokenizer.hpp"
#include "core/model/tokenizer_json.hpp"
#include "core/model/unigram.hpp"
#include "tests/support/places.hpp"
#include "tests/support/test.hpp"

namespace kvscope::piece_tokenizer_test {

using nlohmann::json;
using Ids = std::vector<TokenId>;

const std::filesystem::path kGolden = testing::source_dir() / "tests/golden/tokenizer";

TEST_CASE("files of SentencePiece and Mistral give the ids and texts of their libraries") {
  const json all = json::parse(testing::read_file(kGolden / "pieces.json"));
  REQUIRE(all.size() == 5);
  for (const auto& [name, cases] : all.items()) {
    CAPTURE(name);
    const Tokenizer tokenizer =
        Tokenizer::load(name == "tekken" ? kGolden / "tekken" : kGolden / (name + ".model"));
    for (const json& one : cases) {
      CAPTURE(one.at(0).dump());
      const auto ids = one.at(1).get<Ids>();
      CHECK(tokenizer.encode(one.at(0).get<std::string>()) == ids);
      const bool has_unknown = name != "tekken" && std::ranges::find(ids, 0) != ids.end();
      if (!has_unknown) CHECK(tokenizer.decode(ids) == one.at(2).get<std::string>());
    }
  }
}

TEST_CASE("special tokens are found in texts, and one begins them") {
  const Tokenizer pieces = Tokenizer::load(kGolden / "pieces_bpe.model");
  const Ids hi = pieces.encode("Hi");
  REQUIRE(pieces.id_of("[INST]").has_value());
  Ids expected = {*pieces.id_of("<s>")};
  expected.insert(expected.end(), hi.begin(), hi.end());
  expected.push_back(*pieces.id_of("[INST]"));
  CHECK(pieces.encode("Hi[INST]", /*add_special=*/true) == expected);
  CHECK(pieces.decode(expected, /*skip_special=*/true) == "Hi");

  const Tokenizer tekken = Tokenizer::load(kGolden / "tekken");
  CHECK(tekken.id_of("[INST]") == 3);
  CHECK(tekken.id_of("<SPECIAL_39>") == 39);
  const Ids found = tekken.encode("[INST]a", /*add_special=*/true);
  CHECK(found == Ids{1, 3, 40 + 'a'});
  CHECK(tekken.n_ids() == 630);  // default_vocab_size, less than the file lists
}

TEST_CASE("tokenizer_config.json adds tokens and says what begins a text") {
  const TempDir dir;
  std::filesystem::copy(kGolden / "pieces_bpe.model", dir.path() / "tokenizer.model");
  const auto load = [&](const json& settings) {
    dir.write("tokenizer_config.json", settings.dump());
    return Tokenizer::load(dir.path());
  };
  const Tokenizer plain = load(json::object());
  const TokenId next = plain.n_ids();
  json settings = {{"add_bos_token", false}, {"add_eos_token", true}};
  settings["added_tokens_decoder"][std::to_string(next)] = {{"content", "<|user|>"},
                                                            {"special", true}};
  const Tokenizer added = load(settings);
  CHECK(added.n_ids() == next + 1);
  const Ids ids = added.encode("a<|user|>", /*add_special=*/true);
  CHECK(ids[ids.size() - 2] == next);
  CHECK(ids.back() == *plain.id_of("</s>"));
  CHECK(ids.front() != *plain.id_of("<s>"));
  settings["added_tokens_decoder"] = {{"5", {{"content", "other"}}}};
  CHECK_SAYS_AS(FormatError, load(settings), "as tokenizer.model has it");
  settings["added_tokens_decoder"] = {{"x", {{"content", "other"}}}};
  CHECK_THROWS_AS(load(settings), FormatError);
  dir.write("tokenizer_config.json", "[");
  CHECK_THROWS_AS(Tokenizer::load(dir.path()), FormatError);
}

TEST_CASE("what the other files beside tokenizer.model name is added behind the pieces") {
  const std::pair<const char*, const char*> files[] = {
      {"added_tokens.json", R"({"<x>": 7})"},
      {"special_tokens_map.json", R"({"bos_token": "<s>", "additional_special_tokens": ["<x>"]})"},
      {"tokenizer_config.json", R"({"pad_token": "<x>", "split_special_tokens": true})"}};
  for (const auto& [name, text] : files) {
    INFO(name);
    const TempDir dir;
    std::filesystem::copy(kGolden / "pieces_bpe.model", dir.path() / "tokenizer.model");
    const Tokenizer plain = Tokenizer::load(dir.path());
    dir.write(name, text);
    const Tokenizer added = Tokenizer::load(dir.path());
    CHECK(added.id_of("<x>") == plain.n_ids());
    Ids expected = plain.encode("a");
    expected.push_back(plain.n_ids());
    CHECK(added.encode("a<x>") == expected);
    CHECK(added.n_ids() == plain.n_ids() + 1);
    CHECK(added.not_followed().empty() ==
          (std::string_view(text).find("split") == std::string::npos));
  }
}

TEST_CASE("of a folder's tokenizers tokenizer.json comes first") {
  const TempDir dir;
  CHECK_FALSE(tokenizer_file(dir.path()).has_value());
  for (const char* name : {"spiece.model", "tokenizer.model", "tekken.json", "tokenizer.json"}) {
    dir.write(name, "x");
    CHECK(tokenizer_file(dir.path())->filename() == name);
  }
  CHECK(tokenizer_file(dir.path() / "spiece.model")->filename() == "spiece.model");
}

// ---- broken files, written by hand: field 1 of the message, and so on

std::string length_of(const std::string& bytes) {
  std::string out;
  for (std::size_t n = bytes.size(); true; n >>= 7) {
    out += static_cast<char>((n & 127) | (n >= 128 ? 128 : 0));
    if (n < 128) return out;
  }
}
std::string field(int number, const std::string& bytes) {
  return static_cast<char>(number << 3 | 2) + length_of(bytes) + bytes;
}
std::string field(int number, int value) {
  const int key = number << 3;
  std::string out;
  out += static_cast<char>(key < 128 ? key : (key & 127) | 128);
  if (key >= 128) out += static_cast<char>(key >> 7);
  return out + static_cast<char>(value);
}
std::string piece(const std::string& text, int kind = 1, float score = -1.0f) {
  std::string bytes = field(1, text) + static_cast<char>(2 << 3 | 5);
  bytes.append(reinterpret_cast<const char*>(&score), 4);
  return field(1, bytes + field(3, kind));
}

void check_refused(const std::string& bytes, const std::string& message) {
  CHECK_SAYS_AS(Error, sentencepiece_tokenizer(bytes, "t.model", {}, ""), message, "t.model");
}

TEST_CASE("tokenizer.model files that are broken are refused in a sentence") {
  const std::string good = piece("<unk>", 2) + piece("a") + piece("b");
  CHECK_NOTHROW(sentencepiece_tokenizer(good, "t.model", {}, ""));
  check_refused("", "found no pieces");
  check_refused("{\"model\": 1}", "no protocol buffer");
  check_refused("version https://git-lfs.github.com/spec/v1\n", "no protocol buffer");
  check_refused(good.substr(0, good.size() - 1), "the file is truncated or none");
  check_refused(std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11), "truncated");
  check_refused(std::string(12, '\xff'), "at most ten bytes");
  check_refused(std::string("\x0b", 1), "found kind 3");
  check_refused(std::string("\x00\x00", 2), "expected the number of a field");
  check_refused(field(1, 5), "field 1: expected bytes");
  check_refused(piece("\xff"), "expected text in UTF-8");
  check_refused(piece("a", 1, NAN), "a finite score");
  check_refused(piece("a", 7), "expected a kind from 1 to 6, found 7");
  check_refused(good + piece("a"), "expected each piece once");
  check_refused(good + field(2, field(3, 3)), "expected 1 (unigram) or 2 (BPE), found 3");
  check_refused(good + field(2, field(24, 1)), "treat_whitespace_as_suffix");
  check_refused(good + field(2, field(35, 1)), "expected pieces for all 256 bytes");
  check_refused(good + piece("c", 5) + field(2, field(3, 2)), "unused (5)");
  check_refused(good + field(3, field(2, "abc")), "precompiled_charsmap");
  check_refused(good + field(3, field(2, std::string("\x04\0\0\0\0\0\0\0x", 9))),
                "each with a zero byte behind it");
}

TEST_CASE("a table of characters that leads nowhere is passed by") {
  // Units whose offsets point outside, and a value that is no place in the texts.
  for (const std::uint32_t unit : {0xffffffffu, 0x7fffffffu, 0x00000561u, 0x80000000u}) {
    std::string blob("\x00\x04\0\0", 4);
    for (int i = 0; i < 256; ++i) blob.append(reinterpret_cast<const char*>(&unit), 4);
    blob += std::string("abc\0", 4);
    const CharacterMap map(blob, "t.model");
    for (const char* text : {"a", "abc", "\xc3\xa9", "zzzz"}) map.find(text, 0);
  }
}

TEST_CASE("the best cut of a text is that of trying all of them") {
  UnigramTables tables;
  tables.pieces = {{"a", -2.0f, 1, false},  {"b", -2.5f, 2, false},   {"ab", -3.0f, 3, false},
                   {"ba", -3.5f, 4, false}, {"aba", -5.0f, 5, false}, {"bb", -9.0f, 6, false}};
  const Unigram unigram(tables);
  const auto score_of = [&](const Ids& ids) {
    float sum = 0.0f;
    for (const TokenId id : ids) sum += tables.pieces[id - 1].score;
    return sum;
  };
  for (unsigned word = 0; word < 256; ++word) {
    std::string text;
    for (unsigned bit = 0; bit < 8; ++bit) text += (word >> bit & 1) != 0 ? 'a' : 'b';
    float best = -1e9f;
    const auto cut = [&](auto&& self, std::size_t at, float sum) -> void {
      if (at == text.size()) best = std::max(best, sum);
      for (const UnigramPiece& one : tables.pieces) {
        if (text.compare(at, one.text.size(), one.text) == 0)
          self(self, at + one.text.size(), sum + one.score);
      }
    };
    cut(cut, 0, 0.0f);
    Ids ids;
    unigram.encode(text, ids);
    CHECK(score_of(ids) == best);
  }
  Ids unknown;
  unigram.encode("xyaz", unknown);
  CHECK(unknown == Ids{0, 1, 0});  // a run is one
}

TEST_CASE("sums are floats that begin anew far into a text, as SentencePiece has them") {
  UnigramTables tables;
  tables.pieces = {{"x", -40000.0f, 1, false},    {"i", -5.5207419f, 2, false},
                   {"ca", -6.7107787f, 3, false}, {"ic", -7.2259493f, 4, false},
                   {"a", -5.0045657f, 5, false},  {"xica", -1e6f, 6, true}};
  const Unigram unigram(tables);
  const auto ids_of = [&](std::string_view text) {
    Ids ids;
    unigram.encode(text, ids);
    return ids;
  };
  // ic + a is larger by 0.001, which is lost beside -80,000: then the first cut stays ...
  CHECK(ids_of("ica") == Ids{4, 5});
  CHECK(ids_of("x-xica").size() == 3);  // a user's symbol is worth more than what it stands for
  tables.pieces.pop_back();
  const Unigram plain(tables);
  Ids before, behind;
  plain.encode("xxica", before);
  CHECK(before == Ids{1, 1, 2, 3});
  // ... and behind it the sum begins anew.
  plain.encode("xxxica", behind);
  CHECK(behind == Ids{1, 1, 1, 4, 5});
}

TEST_CASE("tekken.json files that are broken are refused in a sentence") {
  const json good = json::parse(testing::read_file(kGolden / "tekken/tekken.json"));
  const auto refused = [](const json& file, const std::string& message) {
    CHECK_SAYS_AS(Error, tekken_tokenizer(file.dump(), "tekken.json"), message);
  };
  const auto with = [&](const char* pointer, const json& value) {
    json file = good;
    file[json::json_pointer(pointer)] = value;
    return file;
  };
  CHECK_THROWS_AS(tekken_tokenizer("{", "tekken.json"), FormatError);
  refused(json::object(), "config");
  refused(with("/config/pattern", "(a"), "config.pattern (tekken.json)");
  refused(with("/config/default_num_special_tokens", 5), "at least 20");
  refused(with("/config/default_vocab_size", 5000), "a list of at least 4960");
  refused(with("/vocab/3/rank", 4), "vocab[3].rank (tekken.json): expected 3, its place");
  refused(with("/vocab/3/token_bytes", "!!"), "bytes in base64");
  refused(with("/vocab/3/token_bytes", "AA=="), "each token once");
  refused(with("/vocab/3/token_bytes", "AAAA"), "tokens for all 256 bytes");
  refused(with("/special_tokens", {{{"rank", 1}, {"token_str", "<s>"}}}), "expected 0, its place");
  refused(with("/special_tokens",
               {{{"rank", 0}, {"token_str", "<s>"}}, {{"rank", 1}, {"token_str", ""}}}),
          "tokens of their own");
}

}  // namespace kvscope::piece_tokenizer_test
