// Methods of texts, mappings and lists, as Python's.

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"
#include "core/base/utf8.hpp"
#include "core/model/chat/jinja_run.hpp"

namespace kvscope::jinja {

namespace {

/// Whether the text (or one of the list of texts) stands at the end or begin of `of`.
bool stands_at(std::string_view of, const Value& words, bool at_begin, std::string_view name) {
  const auto stands = [&](const Value& word) {
    const std::string& text = text_argument(word, name);
    return at_begin ? of.starts_with(text) : of.ends_with(text);
  };
  if (const List* list = words.as_list())
    return std::any_of(list->items.begin(), list->items.end(), stands);
  return stands(words);
}

/// Pieces of a text between separators, `most` cuts at most (negative: all), from the end if asked.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       std::int64_t most, bool from_end) {
  std::vector<std::string_view> pieces;
  while (most != 0) {
    const std::size_t at = from_end ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    if (from_end) {
      pieces.push_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    } else {
      pieces.push_back(text.substr(0, at));
      text.remove_prefix(at + separator.size());
    }
    --most;
  }
  pieces.push_back(text);
  if (from_end) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

/// Words between white space, as split() without a separator.
std::vector<std::string_view> words_of(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> words;
  text = stripped(text, nullptr, /*at_begin=*/true, /*at_end=*/true);
  while (!text.empty()) {
    std::size_t end = 0;
    while (end < text.size() && !is_white_space(utf8_char_at(text, end).code_point))
      end += utf8_char_at(text, end).size;
    if (most-- == 0) end = text.size();
    words.push_back(text.substr(0, end));
    text = stripped(text.substr(end), nullptr, /*at_begin=*/true, /*at_end=*/false);
  }
  return words;
}

/// "{} {0} {name} {{" with the arguments in place; what stands behind a colon is not known here.
std::string formatted(Run& run, const std::string& text, const Arguments& arguments) {
  std::string out;
  std::size_t n_taken = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c != '{' && c != '}') {
      out += c;
      continue;
    }
    if (at + 1 < text.size() && text[at + 1] == c) {
      out += text[++at];
      continue;
    }
    const std::size_t end = text.find('}', at);
    if (c == '}' || end == std::string::npos)
      throw FormatError("format: a single { or } in its text");
    const std::string field = text.substr(at + 1, end - at - 1);
    const auto place =
        field.empty() ? n_taken++ : number_from<std::size_t>(field).value_or(SIZE_MAX);
    const Value* value = arguments.find(place, field);
    if (value == nullptr)
      throw FormatError("format: there is no argument for {}", quote(field, 40));
    out += run.shown(*value);
    at = end;
  }
  return out;
}

bool is_all(std::string_view text, bool (*holds)(char)) {
  return !text.empty() && std::all_of(text.begin(), text.end(), holds);
}

}  // namespace

Value Run::call_method(const Value& of, const std::string& name, const Arguments& arguments) {
  if (const std::string* text_of = of.as_text()) {
    pay_text(text_of->size());
    return call_text_method(*text_of, name, arguments);
  }
  if (const Mapping* mapping = of.as_mapping()) {
    if (name == "get") {
      const Value* key = arguments.find(0, "key");
      const Value* fallback = arguments.find(1, "default");
      if (key == nullptr) throw FormatError("get: expected a key, found nothing");
      pay(static_cast<std::int64_t>(mapping->entries.size() / 4));
      const std::string* word = key->as_text();
      const Value* found = word == nullptr ? nullptr : mapping->find(*word);
      return found != nullptr ? *found : fallback != nullptr ? *fallback : Value::none();
    }
    if (name == "items" || name == "keys" || name == "values") {
      std::vector<Value> items;
      for (const Entry& entry : mapping->entries) {
        pay_text(32 + entry.first.size());
        if (name == "values")
          items.push_back(entry.second);
        else if (name == "keys")
          items.push_back(Value::text(entry.first));
        else
          items.push_back(Value::list({Value::text(entry.first), entry.second}));
      }
      return Value::list(std::move(items));
    }
  }
  if (const List* list = of.as_list()) {
    if ((name == "index" || name == "count") && !arguments.values.empty()) {
      std::int64_t n = 0;
      for (std::size_t i = 0; i < list->items.size(); ++i) {
        pay(std::min(list->items[i].weight(), arguments.values.front().weight()));
        if (!are_equal(list->items[i], arguments.values.front())) continue;
        if (name == "index") return Value::integer(static_cast<std::int64_t>(i));
        ++n;
      }
      if (name == "count") return Value::integer(n);
      throw FormatError("index: the list does not hold the value");
    }
  }
  throw FormatError("{} has no method {} that templates may call",
                    of.is_undefined() ? "an undefined value" : of.kind(), name);
}

Value Run::call_text_method(const std::string& of, const std::string& name,
                            const Arguments& arguments) {
  const auto given = [&](std::size_t i, std::string_view word) {
    const Value* value = arguments.find(i, word);
    return value != nullptr && value->is_none() ? nullptr : value;
  };
  const auto word_at = [&](std::size_t i) -> const std::string& {
    const Value* value = arguments.find(i, "");
    if (value == nullptr) throw FormatError("{}: an argument is missing", name);
    return text_argument(*value, name);
  };
  const auto count_at = [&](std::size_t i, std::string_view word) {
    const Value* value = given(i, word);
    return value == nullptr ? std::int64_t{-1} : integer_argument(*value, name);
  };
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Value* signs = given(0, "chars");
    return text(std::string(stripped(of, signs ? &text_argument(*signs, name) : nullptr,
                                     name != "rstrip", name != "lstrip")));
  }
  if (name == "startswith" || name == "endswith") {
    const Value* words = given(0, "");
    if (words == nullptr) word_at(0);
    pay(words->weight());
    return Value::truth(stands_at(of, *words, name == "startswith", name));
  }
  if (name == "removeprefix" || name == "removesuffix") {
    const std::string& word = word_at(0);
    const bool at_begin = name == "removeprefix";
    if (word.empty() || !(at_begin ? of.starts_with(word) : of.ends_with(word))) return text(of);
    return text(at_begin ? of.substr(word.size()) : of.substr(0, of.size() - word.size()));
  }
  if (name == "split" || name == "rsplit" || name == "splitlines") {
    std::vector<Value> pieces;
    const auto add = [&](std::string_view piece) { pieces.push_back(text(std::string(piece))); };
    if (name == "splitlines") {
      pay_text(of.size());
      for (const std::string& line : lines_of(of)) add(line);
    } else if (const Value* separator = given(0, "sep")) {
      const std::string& word = text_argument(*separator, name);
      if (word.empty()) throw FormatError("{}: the separator is empty", name);
      for (const std::string_view piece :
           split_at(of, word, count_at(1, "maxsplit"), name == "rsplit"))
        add(piece);
    } else {
      if (name == "rsplit" && given(1, "maxsplit"))
        throw FormatError("rsplit: expected a separator");
      for (const std::string_view word : words_of(of, count_at(1, "maxsplit"))) add(word);
    }
    return Value::list(std::move(pieces));
  }
  if (name == "upper" || name == "lower" || name == "title" || name == "capitalize")
    return text(recased(of, name));
  if (name == "replace") {
    const std::string& from = word_at(0);
    const std::string& to = word_at(1);
    const std::size_t n = from.empty() ? of.size() + 1 : of.size() / from.size();
    pay_text(of.size() + std::min(n, of.size() + 1) * to.size());
    return Value::text(replaced(of, from, to, count_at(2, "count")));
  }
  if (name == "find" || name == "rfind" || name == "index") {
    const std::size_t at = name == "rfind" ? of.rfind(word_at(0)) : of.find(word_at(0));
    if (at != std::string::npos)
      return Value::integer(length_of(std::string_view(of).substr(0, at)));
    if (name == "index") throw FormatError("index: the text does not hold the word");
    return Value::integer(-1);
  }
  if (name == "count") {
    const std::string& word = word_at(0);
    if (word.empty()) return Value::integer(length_of(of) + 1);
    std::int64_t n = 0;
    for (std::size_t at = of.find(word); at != std::string::npos;
         at = of.find(word, at + word.size()))
      ++n;
    return Value::integer(n);
  }
  if (name == "join") {
    const Value* items = given(0, "");
    if (items == nullptr) word_at(0);
    return filter("join", *items, {{Value::text(of)}, {}});
  }
  if (name == "format") return text(formatted(*this, of, arguments));
  if (name == "isdigit")
    return Value::truth(is_all(of, [](char c) { return c >= '0' && c <= '9'; }));
  if (name == "isspace")
    return Value::truth(is_all(of, [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }));
  if (name == "isalpha" || name == "isalnum") {
    const auto is_letter = [](char c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; };
    const bool digits = name == "isalnum";
    return Value::truth(!of.empty() && std::all_of(of.begin(), of.end(), [&](char c) {
      return is_letter(c) || (digits && c >= '0' && c <= '9');
    }));
  }
  if (name == "isupper")
    return Value::truth(recased(of, "upper") == of && recased(of, "lower") != of);
  if (name == "islower")
    return Value::truth(recased(of, "lower") == of && recased(of, "upper") != of);
  throw FormatError("a text has no method {} that templates may call", name);
}

}  // namespace kvscope::jinja
