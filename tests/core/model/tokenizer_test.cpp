// tokenizer.json against the tokenizers library: ids and texts, normal forms, expressions, hostile
// files.
#include "core/model/tokenizer.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/model/byte_level.hpp"
#include "core/model/nfc.hpp"
#include "tests/support/places.hpp"
#include "tests/support/test.hpp"

namespace kvscope::tokenizer_test {

using nlohmann::json;
using Ids = std::vector<TokenId>;

const std::filesystem::path kGolden = testing::source_dir() / "tests/golden/tokenizer";

json read_json(const char* name) {
  return json::parse(testing::read_file(kGolden / name));
}

json byte_level(bool add_prefix_space = false, bool use_regex = false) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"use_regex", use_regex}};
}

json split(const std::string& regex, const char* behavior = "Isolated") {
  const json one = {{"type", "Split"},
                    {"pattern", {{"Regex", regex}}},
                    {"behavior", behavior},
                    {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", json::array({one, byte_level()})}};
}

// All 256 bytes with the byte as id, then `more` from 256 on, and their merges.
json all_bytes(const std::vector<std::pair<std::string, std::string>>& merges = {}) {
  json vocab, list = json::array();
  for (int b = 0; b < 256; ++b) vocab[byte_level_char(static_cast<std::uint8_t>(b))] = b;
  int next = 256;
  for (const auto& [left, right] : merges) {
    vocab[left + right] = next++;
    list.push_back(json::array({left, right}));
  }
  return {{"pre_tokenizer", byte_level()},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", list}}}};
}

Tokenizer parse(const json& tokenizer) {
  return Tokenizer::parse(tokenizer.dump(), "tokenizer.json");
}

template <class E>
void check_refused(const json& tokenizer, const std::string& message) {
  CHECK_SAYS_AS(E, parse(tokenizer), message, "tokenizer.json");
}

// The pieces into which a pattern cuts `text`: every piece is merged to one token, so ids are
// pieces.
std::vector<std::string> pieces(const std::string& regex, const std::string& text,
                                const char* behavior = "Isolated") {
  json tokenizer = all_bytes();
  tokenizer["pre_tokenizer"] = split(regex, behavior);
  tokenizer["model"]["ignore_merges"] = true;
  // Every stretch of the text becomes a token.
  int next = 256;
  for (std::size_t begin = 0; begin < text.size(); ++begin) {
    for (std::size_t size = 2; size <= text.size() - begin; ++size) {
      std::string token;
      for (char c : text.substr(begin, size))
        token += byte_level_char(static_cast<std::uint8_t>(c));
      if (!tokenizer["model"]["vocab"].contains(token)) tokenizer["model"]["vocab"][token] = next++;
    }
  }
  const Tokenizer parsed = parse(tokenizer);
  std::vector<std::string> out;
  for (TokenId id : parsed.encode(text)) out.emplace_back(parsed.bytes_of(id));
  return out;
}

bool matches(const std::string& regex, const std::string& text) {
  return pieces(regex, text, "Removed").empty();
}

TEST_CASE("all golden strings get the ids and texts of the tokenizers library") {
  const Tokenizer tokenizer = Tokenizer::load(kGolden);
  const json cases = read_json("cases.json");
  REQUIRE(cases.size() == 90);
  for (const auto& one : cases) {
    const auto text = one.at("text").get<std::string>();
    const auto ids = one.at("ids").get<Ids>();
    CAPTURE(text);
    CHECK(tokenizer.encode(text) == ids);
    CHECK(tokenizer.decode(ids) == one.at("decoded").get<std::string>());
  }
}

// variants.json: the golden tokenizer with parts exchanged, and what tokenizers 0.23 makes of
// random strings of awkward characters (with special tokens).
TEST_CASE("other pre-tokenizers, added tokens and templates agree with the tokenizers library") {
  const json base = read_json("tokenizer.json");
  for (const json& variant : read_json("variants.json")) {
    CAPTURE(variant.at("name").get<std::string>());
    json tokenizer = base;
    for (const auto& [field, value] : variant.at("change").items()) {
      if (field == "model") {
        tokenizer["model"].update(value);
      } else {
        tokenizer[field] = value;
      }
    }
    const Tokenizer parsed = parse(tokenizer);
    for (const json& one : variant.at("cases")) {
      CAPTURE(one.at(0).dump());
      CHECK(parsed.encode(one.at(0).get<std::string>(), /*add_special=*/true) ==
            one.at(1).get<Ids>());
    }
  }
}

TEST_CASE("NFC agrees with Python's unicodedata") {
  for (const json& one : read_json("nfc.json")) {
    const auto text = one.at(0).get<std::string>();
    const auto expected = one.at(1).get<std::string>();
    CAPTURE(one.at(0).dump());
    CHECK(nfc(text).value_or(text) == expected);
    CHECK(nfc(expected).value_or(expected) == expected);
  }
  CHECK_FALSE(nfc("plain, caf\xc3\xa9"));
}

TEST_CASE("NFKC agrees with Python's unicodedata") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\xef\xac\x81re", "fire"},
      {"\xc2\xa0", " "},
      {"x\xc2\xb2", "x2"},
      {"\xef\xbc\xa8\xef\xbc\xa5", "HE"},
      {"\xe2\x91\xa0", "1"},
      {"\xc2\xbd",
       "1\xe2\x81\x84"
       "2"},
      {"\xef\xb7\xba",
       "\xd8\xb5\xd9\x84\xd9\x89 \xd8\xa7\xd9\x84\xd9\x84\xd9\x87 "
       "\xd8\xb9\xd9\x84\xd9\x8a\xd9\x87 \xd9\x88\xd8\xb3\xd9\x84\xd9\x85"},
      {"\xea\xb0\x80\xe1\x86\xa8", "\xea\xb0\x81"},
      {"A\xcc\x8a\xcc\xa7", "\xc3\x85\xcc\xa7"},
      {"\xe1\xba\x9b\xcc\xa3", "\xe1\xb9\xa9"},
      {"\xe3\x8c\x80", "\xe3\x82\xa2\xe3\x83\x91\xe3\x83\xbc\xe3\x83\x88"},
      {"\xe2\x84\xa6", "\xce\xa9"},
      {"\xc3\xa9", "\xc3\xa9"},
      {"\xc5\xbf\xcc\x87", "\xe1\xb9\xa1"}};
  for (const auto& [text, expected] : cases) {
    CAPTURE(json(text).dump());
    CHECK(nfkc(text).value_or(text) == expected);
    CHECK(nfkc(expected).value_or(expected) == expected);
  }
  CHECK_FALSE(nfkc("plain"));
}

TEST_CASE("a long row of marks is ordered in reasonable time") {
  constexpr std::size_t kPairs = 200'000;
  std::string text = "q", expected = "q";
  for (std::size_t i = 0; i < kPairs; ++i) text += "\xcc\x81\xcc\xa3";  // acute, dot below
  for (std::size_t i = 0; i < kPairs; ++i) expected += "\xcc\xa3";
  for (std::size_t i = 0; i < kPairs; ++i) expected += "\xcc\x81";
  CHECK(nfc(text).value_or(text) == expected);
}

TEST_CASE("white space is Unicode's White_Space") {
  for (const char* space : {" ", "\t", "\n", "\v", "\f", "\r", "\xc2\x85", "\xc2\xa0",
                            "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x8a", "\xe2\x80\xa8",
                            "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"}) {
    CAPTURE(json(space).dump());
    CHECK(matches("\\s", space));
    CHECK(matches("[\\s]", space));
    CHECK_FALSE(matches("\\S", space));
    CHECK_FALSE(matches("[^\\s\\p{L}]", space));
    CHECK_FALSE(matches("[\\S]", space));
  }
  for (const char* other : {"\x1c", "\x1d", "\x1e", "\x1f", "a", "\xe1\xa0\x8e", "\xe2\x80\x8b",
                            "\xef\xbb\xbf", "\xe2\x81\xa0"}) {
    CAPTURE(json(other).dump());
    CHECK_FALSE(matches("\\s", other));
    CHECK_FALSE(matches("[\\s]", other));
    CHECK(matches("\\S", other));
    CHECK(matches("[\\S]", other));
  }
}

TEST_CASE("case folding is Unicode's") {
  CHECK(matches("(?i:'s)", "'S"));
  CHECK(matches("(?i:'s)", "'\xc5\xbf"));       // long s
  CHECK(matches("(?i:k)", "\xe2\x84\xaa"));     // Kelvin sign
  CHECK(matches("(?i)[a-k]", "\xe2\x84\xaa"));  // also through a range
  CHECK_FALSE(matches("(?i:i)", "\xc4\xb1"));   // dotless i
  CHECK_FALSE(matches("(?i:i)", "\xc4\xb0"));   // dotted capital I
  CHECK_FALSE(matches("(?i:a(?-i:B))", "Ab"));
}

// Which of these characters tokenizers 0.23 finds: some of every kind of case, with three forms,
// two or one, letters, numbers, symbols and marks.
TEST_CASE("properties where case is ignored are those of the tokenizers library") {
  const auto found = [](const std::string& regex) {
    std::string all;
    for (const char* one :
         {"a", "K", "1", "\u01c4", "\u01c5", "\u01c6", "\u017f", "\u212a", "\u2160", "\u2170",
          "\u24b6", "\u24d0", "\u0131", "\u0345", "\u03b9", "\u00b5", "\u03bc"}) {
      if (matches(regex, one)) all += one;
    }
    return all;
  };
  CHECK(found("(?i)\\p{Lu}") == "K\u01c4\u212a");
  CHECK(found("(?i:\\P{Lu}+)") ==
        "a1\u01c5\u01c6\u017f\u2160\u2170\u24b6\u24d0\u0131\u0345\u03b9\u00b5\u03bc");
  CHECK(found("(?i)\\p{Lt}") == "\u01c5");
  CHECK(found("(?i)\\p{ll}") == "a\u01c6\u017f\u0131\u03b9\u00b5\u03bc");
  CHECK(found("(?i)\\p{Uppercase}") == "K\u01c4\u212a\u2160\u24b6");
  CHECK(found("(?i)[\\p{L}]") == "aK\u01c4\u01c5\u01c6\u017f\u212a\u0131\u0345\u03b9\u00b5\u03bc");
  CHECK(found("(?i)[^\\p{L}]") == "1\u2160\u2170\u24b6\u24d0");
  CHECK(found("(?i)[\\P{L}]") == "1\u2160\u2170\u24b6\u24d0\u0345\u03b9");
  CHECK(found("(?i)[\\p{M}]") == "\u0345\u03b9");
  CHECK(found("(?i)[\\p{Greek}]") == "\u0345\u03b9\u00b5\u03bc");
  CHECK(found("(?i)[^\\P{Greek}a]") == "");
  // Where the option ends, case counts again.
  CHECK(found("(?i:x)|\\p{Lu}|(?-i:[\\p{Lt}])") == "K\u01c4\u01c5\u212a");
  CHECK(found("(?i:(?-i:[\\p{Lt}]))|(?:(?i)1)|[\\p{Ll}]") ==
        "a1\u01c5\u01c6\u017f\u0131\u03b9\u00b5\u03bc");
}

TEST_CASE("expressions are read in the dialect of the tokenizers library") {
  CHECK(matches("\\p{N}{1,2}+", "12345"));  // a repeated repeat, not a possessive one
  CHECK(matches("(?:a|b{1,2})+c", "abbc"));
  CHECK(matches("a{,2}b", "aab"));
  CHECK(matches("a{b", "a{b"));
  CHECK(matches("\\h\\h", "fF"));
  CHECK(matches("\\v", "\x0b"));
  CHECK_FALSE(matches("\\v", "\n"));
  CHECK(matches("(?m:a.b)", "a\nb"));
  CHECK_FALSE(matches("a.b", "a\nb"));
  CHECK(matches("\\w", "\xcc\x81"));               // a combining mark is a word character
  CHECK(matches("\\w", "\xc2\xb2"));               // and so is a superscript two
  CHECK_FALSE(matches("\\p{Greek}", "\xcc\x81"));  // scripts, not script extensions
  CHECK(matches("\\p{^L}\\P{N}", "1a"));
  CHECK(pieces("\\b", "ab cd", "Isolated") == std::vector<std::string>{"ab", " ", "cd"});
  CHECK(pieces("^a", "a\na", "Isolated") == std::vector<std::string>{"a", "\n", "a"});
}

TEST_CASE("a malformed expression is refused with a sentence") {
  for (const char* regex : {"(",
                            "a)",
                            "[",
                            "[]",
                            "[a",
                            "[[:punct:]]",
                            "\\R+",
                            "\\Ga",
                            "(?L)a*",
                            "(*FAIL)",
                            "(?<x>a\\g<x>?)b",
                            "*a",
                            "a{1,199999}",
                            "\\",
                            "\\1",
                            "\\p{Nonsense}",
                            "\\p{L",
                            "(?C1)a",
                            "(?1)",
                            "(?(1)a|b)",
                            "(?|a|b)",
                            "(?P<n>a)",
                            "(?<n",
                            "(?i",
                            "(?#"}) {
    CAPTURE(regex);
    json tokenizer = all_bytes();
    tokenizer["pre_tokenizer"] = split(regex);
    check_refused<ConfigError>(tokenizer, "regular expression");
  }
  json tokenizer = all_bytes();
  tokenizer["pre_tokenizer"] = split(std::string(100000, 'a'));
  check_refused<ConfigError>(tokenizer, "at most");
  tokenizer["pre_tokenizer"] = split(std::string(20000, '(') + std::string(10000, 'a'));
  check_refused<ConfigError>(tokenizer, "regular expression");
}

TEST_CASE("a hostile regular expression ends in an error, not in hours") {
  // looking ahead costs little per character: a fast machine gets through shorter texts; where a
  // step back may run over all of the text, short ones do
  const std::pair<const char*, std::size_t> hostile[] = {
      {"(a+)+[bc]", 20000},    {"(a|aa)+$[bc]", 20000},    {"a*a*[bc]", 20000},
      {"(?=.*[bc])a", 500000}, {"(?:a|a){0,22}.*z", 5000}, {"((?:a|a){0,19}(?:.*z))|b", 5000}};
  for (const auto& [regex, n_characters] : hostile) {
    CAPTURE(regex);
    json tokenizer = all_bytes();
    tokenizer["pre_tokenizer"] = split(regex);
    CHECK_SAYS_AS(FormatError, parse(tokenizer).encode(std::string(n_characters, 'a') + "!"),
                  "costs too much");
  }
}

TEST_CASE("a megabyte in one piece is merged in well under quadratic time") {
  const json base = read_json("tokenizer.json");
  const Tokenizer tokenizer = parse(base);
  for (const std::string unit :
       {"a", "th", "the", " ", "\n", " \n", "!-", "\xe4\xb8\xad", "in", "\t "}) {
    std::string text;
    while (text.size() < 1000000) text += unit;
    for (const char* end : {"", "x"}) {
      CAPTURE(json(unit).dump(), end);
      CHECK(tokenizer.decode(tokenizer.encode(text + end)) == text + end);
    }
  }
}

TEST_CASE("decoding, names and bytes of tokens") {
  json config = all_bytes({{"t", "h"}, {"\xc4\xa0", "th"}});
  config["added_tokens"] = {{{"id", 300}, {"content", "<s>"}, {"special", true}},
                            {{"id", 301}, {"content", "caf\xc3\xa9"}, {"special", false}}};
  const Tokenizer tokenizer = parse(config);
  CHECK(tokenizer.n_ids() == 302);
  CHECK(tokenizer.bytes_of(257) == " th");
  CHECK(tokenizer.bytes_of(0xff) == "\xff");
  CHECK(tokenizer.bytes_of(301) == "caf\xc3\xa9");
  CHECK(tokenizer.id_of(" th") == 257);
  CHECK(tokenizer.id_of("<s>") == 300);
  CHECK(tokenizer.id_of("caf\xc3\xa9") == 301);
  CHECK_FALSE(tokenizer.id_of("missing"));
  CHECK(tokenizer.encode(" th<s>caf\xc3\xa9") == Ids{257, 300, 301});
  CHECK(tokenizer.decode(Ids{300, 257, 301}) == "<s> thcaf\xc3\xa9");
  CHECK(tokenizer.decode(Ids{300, 257, 301}, /*skip_special=*/true) == " thcaf\xc3\xa9");
  CHECK(tokenizer.encode("").empty());
  CHECK(tokenizer.decode({}).empty());
  for (TokenId id : {-1, 258, 299, 302, 2147483647}) {
    CAPTURE(id);
    CHECK_THROWS_AS(tokenizer.decode(Ids{id}), ConfigError);
    CHECK_THROWS_AS(tokenizer.bytes_of(id), ConfigError);
  }
}

TEST_CASE("any bytes survive, and text that is not UTF-8 is refused at its offset") {
  const Tokenizer tokenizer = Tokenizer::load(kGolden / "tokenizer.json");
  std::string all;
  for (int c = 1; c < 0x800; ++c) {
    if (c < 0x80) {
      all += static_cast<char>(c);
    } else {
      all += static_cast<char>(0xc0 | (c >> 6));
      all += static_cast<char>(0x80 | (c & 0x3f));
    }
  }
  all += '\0';
  CHECK(tokenizer.decode(tokenizer.encode(all)) == all);
  for (const char* broken :
       {"\x80", "\xc3", "\xc0\xaf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
        "\xf8\x88\x80\x80\x80", "\xff", "\xe2\x82", "\xf0\x9f\x98"}) {
    for (const char* before : {"", "0123456789", "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"}) {
      CAPTURE(json(before).dump());
      CHECK_SAYS_AS(FormatError, tokenizer.encode(before + std::string(broken)),
                    fmt::format("offset {}", std::string_view(before).size()));
    }
  }
}

TEST_CASE("bytes without a token are dropped, or become the unknown token") {
  json config = {
      {"pre_tokenizer", byte_level()},
      {"model",
       {{"type", "BPE"}, {"vocab", {{"a", 0}, {"u", 1}, {"uu", 2}}}, {"merges", json::array()}}}};
  CHECK(parse(config).encode("aXXa") == Ids{0, 0});
  config["model"]["unk_token"] = "u";
  CHECK(parse(config).encode("aXXa") == Ids{0, 1, 1, 0});
  config["model"]["fuse_unk"] = true;
  CHECK(parse(config).encode("aXXaX") == Ids{0, 1, 0, 1});
  config["model"]["unk_token"] = "missing";
  check_refused<FormatError>(config, "unk_token");
}

TEST_CASE("broken vocabularies and merges name what is wrong") {
  const auto with = [](const char* pointer, const json& value) {
    json config = all_bytes({{"t", "h"}});
    config[json::json_pointer(pointer)] = value;
    return config;
  };
  check_refused<FormatError>(with("/model/merges", {"t x"}), "merges[0]");
  check_refused<FormatError>(with("/model/merges", {"t hx"}), "\"hx\"");
  check_refused<FormatError>(with("/model/merges", {"h t"}), "\"ht\"");
  for (const json& merge : {json("th"), json("t h h"), json(""), json(3), json::array({"t"}),
                            json::array({"t", 1}), json::array({"t", "h", "h"})}) {
    CAPTURE(merge.dump());
    check_refused<FormatError>(with("/model/merges", json::array({merge})), "merges[0]");
  }
  CHECK(parse(with("/model/merges", {"#version: 0.2", "t h"})).encode("th") == Ids{256});
  check_refused<FormatError>(with("/model/merges", 3), "expected a list");
  check_refused<FormatError>(with("/model/vocab", json::array()), "expected an object");
  for (const json& id :
       {json(-1), json(1.5), json("1"), json(2147483647), json(nullptr), json(4294967296)}) {
    CAPTURE(id.dump());
    check_refused<FormatError>(with("/model/vocab/zz", id), "zz");
  }
  check_refused<FormatError>(with("/model/vocab/zz", 256), "id 256 is given twice");
  const auto added = [&](json token) {
    return with("/added_tokens", json::array({std::move(token)}));
  };
  check_refused<FormatError>(added({{"content", "<s>"}}), "added_tokens[0].id");
  check_refused<FormatError>(added({{"id", 300}}), "added_tokens[0].content");
  check_refused<FormatError>(added({{"id", 300}, {"content", ""}}), "added_tokens[0].content");
  check_refused<FormatError>(added({{"id", 300}, {"content", std::string(2000, 'x')}}),
                             "1 to 1024 bytes");
  check_refused<FormatError>(added({{"id", 256}, {"content", "<s>"}}), "given twice");
  check_refused<FormatError>(added({{"id", 300}, {"content", "th"}}), "256 as in the vocabulary");
  check_refused<FormatError>(added({{"id", 300}, {"content", "<s>"}, {"lstrip", 1}}), "lstrip");
  CHECK_THROWS_AS(Tokenizer::parse("", "t"), FormatError);
  CHECK_THROWS_AS(Tokenizer::parse("{}", "t"), FormatError);
  CHECK_THROWS_AS(Tokenizer::parse("[]", "t"), FormatError);
  CHECK_THROWS_AS(Tokenizer::parse(std::string(100000, '['), "t"), FormatError);
}

TEST_CASE("kinds that are not implemented are named, with what is") {
  const auto with = [](const char* pointer, const json& value) {
    json config = all_bytes();
    config[json::json_pointer(pointer)] = value;
    return config;
  };
  check_refused<ConfigError>(with("/model/type", "Unigram"),
                             "expected \"BPE\", found the string \"Unigram\"");
  check_refused<ConfigError>(with("/model/dropout", 0.1), "dropout");
  check_refused<ConfigError>(with("/model/end_of_word_suffix", "</w>"), "end_of_word_suffix");
  check_refused<ConfigError>(with("/model/continuing_subword_prefix", "##"),
                             "continuing_subword_prefix");
  CHECK_NOTHROW(parse(with("/model/byte_fallback", true)));
  json partial = with("/model/byte_fallback", true);
  partial["model"]["vocab"].erase("a");
  // As the tokenizers library: a byte without a token and without a fallback is dropped.
  CHECK(parse(partial).encode("xax") == parse(partial).encode("xx"));
  CHECK_NOTHROW(parse(
      with("/decoder", {{"type", "Sequence"},
                        {"decoders", {{{"type", "ByteFallback"}}, {{"type", "ByteLevel"}}}}})));
  const auto some_id = partial["model"]["vocab"].size() + 1000;
  partial["model"]["vocab"]["<0x61>"] = some_id;
  check_refused<ConfigError>(partial, "byte_fallback");
  check_refused<ConfigError>(with("/pre_tokenizer", nullptr), "decoder");
  check_refused<ConfigError>(with("/pre_tokenizer/type", "BertPreTokenizer"), "BertPreTokenizer");
  check_refused<FormatError>(with("/pre_tokenizer", {{"type", 1}}), "type");
  json after = with("/pre_tokenizer", {{"type", "Sequence"},
                                       {"pretokenizers", {byte_level(), {{"type", "Digits"}}}}});
  check_refused<ConfigError>(after, "nothing after ByteLevel");
  check_refused<ConfigError>(with("/normalizer", {{"type", "NFKD"}}), "NFKD");
  CHECK_NOTHROW(parse(with("/normalizer", {{"type", "NFKC"}})));
  check_refused<ConfigError>(with("/decoder", {{"type", "Metaspace"}}), "Metaspace");
  check_refused<ConfigError>(with("/post_processor", {{"type", "BertProcessing"}}),
                             "BertProcessing");
  json deep = {{"type", "NFC"}};
  for (int i = 0; i < 20; ++i) deep = {{"type", "Sequence"}, {"normalizers", json::array({deep})}};
  check_refused<ConfigError>(with("/normalizer", deep), "nested");
  json broken = with("/pre_tokenizer", split("a"));
  broken["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "isolated";
  check_refused<FormatError>(broken, "MergedWithPrevious");
  broken["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"String", ""}};
  check_refused<FormatError>(broken, "String");
}

TEST_CASE("templates put special tokens around the text") {
  json config = all_bytes();
  const json item_s = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const json item_a = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  config["added_tokens"] = {{{"id", 300}, {"content", "<s>"}, {"special", true}}};
  config["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", {item_s, item_a, item_s}},
                              {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {300, 97}}}}}}};
  CHECK(parse(config).encode("b", /*add_special=*/true) == Ids{300, 97, 98, 300, 97});
  CHECK(parse(config).encode("b") == Ids{98});
  json broken = config;
  broken["post_processor"]["single"] = json::array({item_s});
  check_refused<ConfigError>(broken, "single");
  broken["post_processor"]["single"] = {item_a, item_a};
  check_refused<ConfigError>(broken, "single");
  broken = config;
  broken["post_processor"]["special_tokens"] = json::object();
  check_refused<FormatError>(broken, "special_tokens");
  broken["post_processor"]["special_tokens"] = {{"<s>", {{"id", "<s>"}, {"ids", {999}}}}};
  check_refused<FormatError>(broken, "999");
}

}  // namespace kvscope::tokenizer_test
