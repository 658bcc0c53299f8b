#include "core/base/json_reader.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

using nlohmann::json;

// Refuses the second occurrence of a key in one object while the text is being parsed.
class DuplicateKeys {
 public:
  explicit DuplicateKeys(const std::string& where) : where_(where) {}

  bool operator()(int /*depth*/, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
        keys_.emplace_back();
        break;
      case json::parse_event_t::object_end:
        keys_.pop_back();
        break;
      case json::parse_event_t::key:
        if (!keys_.back().insert(parsed.get_ref<const std::string&>()).second) {
          throw FormatError(fmt::format("{}: the key {} occurs twice in one object", where_,
                                        quote(parsed.get_ref<const std::string&>())));
        }
        break;
      default:
        break;
    }
    return true;
  }

 private:
  const std::string& where_;
  std::vector<std::unordered_set<std::string>> keys_;
};

// "[json.exception.parse_error.101] parse error at line 1, ..." without the bracket, in bounded
// length.
std::string reason_of(const json::exception& error) {
  std::string_view text = error.what();
  if (const auto end = text.find("] "); end != std::string_view::npos) text.remove_prefix(end + 2);
  std::string clean;
  for (char c : text.substr(0, 200)) {
    clean +=
        (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) ? '?' : c;
  }
  return text.size() > 200 ? clean + "..." : clean;
}

}  // namespace

std::string quote(std::string_view text, std::size_t max_length) {
  std::string out = "\"";
  for (char c : text.substr(0, max_length)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte > 0x7e) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + (text.size() > max_length ? "...\"" : "\"");
}

json parse_json(std::string_view text, const std::string& where) {
  try {
    DuplicateKeys refuse_duplicates(where);
    return json::parse(text.begin(), text.end(), std::ref(refuse_duplicates));
  } catch (const json::exception& error) {
    throw FormatError(fmt::format("{}: expected JSON, found a {}", where, reason_of(error)));
  }
}

std::string describe(const json& value) {
  switch (value.type()) {
    case json::value_t::null:
      return "null";
    case json::value_t::object:
      return fmt::format("an object of {} fields", value.size());
    case json::value_t::array:
      return fmt::format("a list of {}", value.size());
    case json::value_t::string:
      return fmt::format("the string {}", quote(value.get_ref<const std::string&>()));
    case json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    case json::value_t::number_integer:
      return fmt::format("the number {}", value.get<std::int64_t>());
    case json::value_t::number_unsigned:
      return fmt::format("the number {}", value.get<std::uint64_t>());
    case json::value_t::number_float:
      return fmt::format("the number {}", value.get<double>());
    default:
      return "something else";
  }
}

JsonObject::JsonObject(const json& value, std::string where, std::string path)
    : value_(&value), where_(std::move(where)), path_(std::move(path)) {
  if (value.is_object()) return;
  const std::string name = path_.empty() ? where_ : fmt::format("{} ({})", path_, where_);
  throw FormatError(fmt::format("{}: expected a JSON object, found {}", name, describe(value)));
}

std::string JsonObject::name_of(const std::string& field) const {
  return fmt::format("{}{} ({})", path_, field, where_);
}

void JsonObject::refuse(const std::string& field, std::string_view expected) const {
  const auto it = value_->find(field);
  throw FormatError(fmt::format("{}: expected {}, found {}", name_of(field), expected,
                                it == value_->end() ? "nothing" : describe(*it)));
}

const json* JsonObject::find(const std::string& field) const {
  const auto it = value_->find(field);
  return it == value_->end() || it->is_null() ? nullptr : &*it;
}

const json& JsonObject::require(const std::string& field) const {
  const json* value = find(field);
  if (value == nullptr) refuse(field, "a value");
  return *value;
}

std::int64_t JsonObject::integer(const std::string& field, std::int64_t low,
                                 std::int64_t high) const {
  const auto expected = [&] {
    constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
    return high == kMax ? fmt::format("an integer of at least {}", low)
                        : fmt::format("an integer from {} to {}", low, high);
  };
  const json* value = find(field);
  if (value == nullptr || !value->is_number_integer()) refuse(field, expected());
  // Unsigned numbers over the signed range must not wrap around to negative ones.
  if (value->is_number_unsigned() &&
      value->get<std::uint64_t>() >
          static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    refuse(field, expected());
  }
  const auto number = value->get<std::int64_t>();
  if (number < low || number > high) refuse(field, expected());
  return number;
}

std::int64_t JsonObject::integer_or(const std::string& field, std::int64_t low, std::int64_t high,
                                    std::int64_t fallback) const {
  return find(field) == nullptr ? fallback : integer(field, low, high);
}

double JsonObject::number(const std::string& field, double low, double high) const {
  const json* value = find(field);
  const auto expected = [&] { return fmt::format("a number from {} to {}", low, high); };
  if (value == nullptr || !value->is_number()) refuse(field, expected());
  const auto number = value->get<double>();
  if (!std::isfinite(number) || number < low || number > high) refuse(field, expected());
  return number;
}

double JsonObject::number_or(const std::string& field, double low, double high,
                             double fallback) const {
  return find(field) == nullptr ? fallback : number(field, low, high);
}

bool JsonObject::boolean_or(const std::string& field, bool fallback) const {
  const json* value = find(field);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) refuse(field, "true or false");
  return value->get<bool>();
}

const std::string& JsonObject::string(const std::string& field) const {
  const json* value = find(field);
  if (value == nullptr || !value->is_string()) refuse(field, "a string");
  return value->get_ref<const std::string&>();
}

std::optional<std::string> JsonObject::string_if(const std::string& field) const {
  if (find(field) == nullptr) return std::nullopt;
  return string(field);
}

JsonObject JsonObject::object(const std::string& field) const {
  const json* value = find(field);
  if (value == nullptr || !value->is_object()) refuse(field, "an object");
  return JsonObject(*value, where_, path_ + field + ".");
}

const json& JsonObject::list(const std::string& field) const {
  const json* value = find(field);
  if (value == nullptr || !value->is_array()) refuse(field, "a list");
  return *value;
}

}  // namespace kvscope
