// Texts as Python has them: repr(), strip(), letters, lines.
#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/base/utf8.hpp"
#include "core/model/chat/jinja_run.hpp"

namespace kvscope::jinja {

namespace {

/// Python's white space: Unicode's, and four separators of ASCII.
bool is_python_space(char32_t point) {
  return is_white_space(point) || (point >= 0x1C && point <= 0x1F);
}

std::string quoted(const std::string& text) {
  const char sign =
      text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, sign);
  for (const char c : text) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\\')
      out += "\\\\";
    else if (c == sign)
      (out += '\\') += c;
    else if ((c >= 0 && c < ' ') || c == 0x7F)
      out += fmt::format("\\x{:02x}", static_cast<int>(c));
    else
      out += c;
  }
  return out += sign;
}

void append_python(const Value& value, std::string& out) {
  if (value.is_undefined())
    out += "Undefined";
  else if (value.is_none())
    out += "None";
  else if (const bool* truth = value.as_truth())
    out += *truth ? "True" : "False";
  else if (const std::int64_t* whole = value.as_integer())
    out += fmt::format("{}", *whole);
  else if (const double* number = value.as_number())
    out += python_number(*number);
  else if (const std::string* text = value.as_text())
    out += quoted(*text);
  else if (const List* list = value.as_list()) {
    out += '[';
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) out += ", ";
      append_python(list->items[i], out);
    }
    out += ']';
  } else if (const Mapping* mapping = value.as_namespace() ? nullptr : value.as_mapping()) {
    out += '{';
    bool is_first = true;
    for (const Entry& entry : mapping->entries) {
      if (!is_first) out += ", ";
      is_first = false;
      out += quoted(entry.first) + ": ";
      append_python(entry.second, out);
    }
    out += '}';
  } else {
    out += value.as_namespace() != nullptr ? "<Namespace>" : "<function>";
  }
}

}  // namespace

std::string python_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string python_text(Run& run, const Value& value) {
  run.pay(value.weight());
  std::string out;
  append_python(value, out);
  return out;
}

std::int64_t length_of(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

std::string_view stripped(std::string_view text, const std::string* signs, bool at_begin,
                          bool at_end) {
  const auto goes = [&](std::string_view sign, char32_t point) {
    return signs == nullptr ? is_python_space(point) : signs->find(sign) != std::string::npos;
  };
  while (at_begin && !text.empty()) {
    const Utf8Char c = utf8_char_at(text, 0);
    if (!goes(text.substr(0, c.size), c.code_point)) break;
    text.remove_prefix(c.size);
  }
  while (at_end && !text.empty()) {
    const std::size_t at = utf8_char_before(text, text.size());
    if (!goes(text.substr(at), utf8_char_at(text, at).code_point)) break;
    text.remove_suffix(text.size() - at);
  }
  return text;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     std::int64_t most) {
  std::string out;
  std::size_t at = 0;
  if (from.empty()) {  // between all characters
    while (most != 0) {
      out += to;
      --most;
      if (at == text.size()) return out;
      const std::size_t size = utf8_char_at(text, at).size;
      out += text.substr(at, size);
      at += size;
    }
    return out += text.substr(at);
  }
  for (; most != 0; --most) {
    const std::size_t found = text.find(from, at);
    if (found == std::string_view::npos) break;
    out += text.substr(at, found - at);
    out += to;
    at = found + from.size();
  }
  return out += text.substr(at);
}

std::string recased(std::string_view text, std::string_view how) {
  std::string out;
  bool begins = true;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char_at(text, at);
    at += c.size;
    const auto point = static_cast<utf8proc_int32_t>(c.code_point);
    const bool upper = how == "upper" || (how != "lower" && begins);
    const utf8proc_int32_t other = upper ? utf8proc_toupper(point) : utf8proc_tolower(point);
    append_utf8(out, static_cast<char32_t>(other));
    const utf8proc_category_t category = utf8proc_category(point);
    const bool is_letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    begins = how == "title" && !is_letter;
  }
  return out;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char_at(text, at);
    const char32_t p = c.code_point;
    const bool ends = (p >= 0x0A && p <= 0x0D) || (p >= 0x1C && p <= 0x1E) || p == 0x85 ||
                      p == 0x2028 || p == 0x2029;
    if (ends) lines.emplace_back(text.substr(begin, at - begin));
    at += c.size;
    if (ends && p == '\r' && at < text.size() && text[at] == '\n') ++at;
    if (ends) begin = at;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

const std::string& text_argument(const Value& value, std::string_view of) {
  const std::string* text = value.as_text();
  if (text == nullptr)
    throw FormatError("{}: expected a text, found {}", of,
                      value.is_undefined() ? "an undefined value" : value.kind());
  return *text;
}

std::int64_t integer_argument(const Value& value, std::string_view of) {
  if (const bool* truth = value.as_truth()) return *truth ? 1 : 0;
  const std::int64_t* number = value.as_integer();
  if (number == nullptr)
    throw FormatError("{}: expected a whole number, found {}", of,
                      value.is_undefined() ? "an undefined value" : value.kind());
  return *number;
}

}  // namespace kvscope::jinja
