#include "core/base/json_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

using Json = nlohmann::json;

// "[json.exception.parse_error.101] parse error at line 1, ..." without the bracket, in bounded
// length.
std::string reason_of(const Json::exception& error) {
  std::string_view text = error.what();
  if (const auto end = text.find("] "); end != std::string_view::npos) text.remove_prefix(end + 2);
  std::string clean;
  for (char c : text.substr(0, 200)) {
    clean +=
        (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) ? '?' : c;
  }
  return text.size() > 200 ? clean + "..." : clean;
}

// Builds a value while the text is parsed. nlohmann's own builder with a callback takes quadratic
// time, and without one it accepts repeated keys and any depth.
template <class Value>
class ValueBuilder {
 public:
  using number_integer_t = typename Value::number_integer_t;
  using number_unsigned_t = typename Value::number_unsigned_t;
  using number_float_t = typename Value::number_float_t;
  using string_t = typename Value::string_t;
  using binary_t = typename Value::binary_t;

  explicit ValueBuilder(const std::string& where) : where_(where) {}

  Value take() { return std::move(root_); }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(number_integer_t value) { return add(value); }
  bool number_unsigned(number_unsigned_t value) { return add(value); }
  bool number_float(number_float_t value, const string_t&) { return add(value); }
  bool string(string_t& value) { return add(std::move(value)); }
  bool binary(binary_t& value) { return add(std::move(value)); }
  bool start_object(std::size_t) { return open(Value::object()); }
  bool start_array(std::size_t) { return open(Value::array()); }
  bool key(string_t& name) {
    key_ = std::move(name);
    return true;
  }
  bool end_array() {
    open_.pop_back();
    return true;
  }
  bool end_object() {
    refuse_repeated_keys(open_.back()->template get_ref<const typename Value::object_t&>());
    open_.pop_back();
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception& error) {
    throw FormatError("{}: expected JSON, found a {}", where_, reason_of(error));
  }

 private:
  static constexpr bool kIsOrdered = std::is_same_v<Value, nlohmann::ordered_json>;

  [[noreturn]] void throw_repeated(const std::string& key) const {
    throw FormatError("{}: the key {} occurs twice in one object", where_, quote(key));
  }

  Value& place(Value&& value) {
    if (open_.empty()) return root_ = std::move(value);
    Value& parent = *open_.back();
    if (parent.is_array()) {
      auto& list = parent.template get_ref<typename Value::array_t&>();
      return list.emplace_back(std::move(value));
    }
    auto& object = parent.template get_ref<typename Value::object_t&>();
    if constexpr (kIsOrdered) {  // a vector; looking for the key here would be quadratic
      object.push_back({std::move(key_), std::move(value)});
      return object.back().second;
    } else {
      const auto [it, is_new] = object.emplace(std::move(key_), std::move(value));
      if (!is_new) throw_repeated(it->first);
      return it->second;
    }
  }

  template <class T>
  bool add(T&& value) {
    place(Value(std::forward<T>(value)));
    return true;
  }

  bool open(Value&& value) {
    if (open_.size() == kMostJsonDepth) {
      throw FormatError("{}: expected brackets nested at most {} deep, found more", where_,
                        kMostJsonDepth);
    }
    open_.push_back(&place(std::move(value)));
    return true;
  }

  void refuse_repeated_keys(const typename Value::object_t& object) const {
    if constexpr (kIsOrdered) {
      std::vector<std::string_view> keys;
      keys.reserve(object.size());
      for (const auto& field : object) keys.push_back(field.first);
      std::sort(keys.begin(), keys.end());
      const auto twice = std::adjacent_find(keys.begin(), keys.end());
      if (twice != keys.end()) throw_repeated(std::string(*twice));
    }
  }

  const std::string& where_;
  Value root_;
  std::vector<Value*> open_;  // a value stays where it is while it is the last of an open one
  std::string key_;
};

template <class Value>
Value parse_as(std::string_view text, const std::string& where) {
  ValueBuilder<Value> builder(where);
  Value::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
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

Json parse_json(std::string_view text, const std::string& where) {
  return parse_as<Json>(text, where);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where) {
  return parse_as<nlohmann::ordered_json>(text, where);
}

std::string describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return fmt::format("an object of {} fields", value.size());
    case Json::value_t::array:
      return fmt::format("a list of {}", value.size());
    case Json::value_t::string:
      return fmt::format("the string {}", quote(value.get_ref<const std::string&>()));
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    case Json::value_t::number_integer:
      return fmt::format("the number {}", value.get<std::int64_t>());
    case Json::value_t::number_unsigned:
      return fmt::format("the number {}", value.get<std::uint64_t>());
    case Json::value_t::number_float:
      return fmt::format("the number {}", value.get<double>());
    default:
      return "something else";
  }
}

JsonObject::JsonObject(const Json& value, std::string where, std::string path, FieldsRead* read)
    : value_(&value), where_(std::move(where)), path_(std::move(path)), read_(read) {
  if (value.is_object()) return;
  const std::string name = path_.empty() ? where_ : fmt::format("{} ({})", path_, where_);
  throw FormatError("{}: expected a JSON object, found {}", name, describe(value));
}

std::string JsonObject::name_of(const std::string& field) const {
  return fmt::format("{}{} ({})", path_, field, where_);
}

void JsonObject::refuse(const std::string& field, std::string_view expected) const {
  const auto it = value_->find(field);
  throw FormatError("{}: expected {}, found {}", name_of(field), expected,
                    it == value_->end() ? "nothing" : describe(*it));
}

const Json* JsonObject::find(const std::string& field) const {
  if (read_ != nullptr) read_->insert(path_ + field);
  const auto it = value_->find(field);
  return it == value_->end() || it->is_null() ? nullptr : &*it;
}

bool JsonObject::has(const std::string& field) const {
  if (read_ != nullptr) read_->insert(path_ + field);
  return value_->contains(field);
}

std::vector<std::string> JsonObject::unread() const {
  std::vector<std::string> names;
  for (const auto& [field, value] : value_->items()) {
    if (value.is_null() || value == false || (value.is_structured() && value.empty())) continue;
    if (!read_->contains(path_ + field)) {
      names.push_back(path_ + field);
    } else if (value.is_object() && read_->contains(path_ + field + ".")) {
      for (std::string& name : object(field).unread()) names.push_back(std::move(name));
    }
  }
  return names;
}

const Json& JsonObject::require(const std::string& field) const {
  const Json* value = find(field);
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
  const Json* value = find(field);
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
  const Json* value = find(field);
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
  return boolean_if(field).value_or(fallback);
}

std::optional<std::int64_t> JsonObject::integer_if(const std::string& field, std::int64_t low,
                                                   std::int64_t high) const {
  return find(field) == nullptr ? std::nullopt : std::optional(integer(field, low, high));
}

std::optional<double> JsonObject::number_if(const std::string& field) const {
  const Json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !std::isfinite(value->get<double>())) refuse(field, "a finite number");
  return value->get<double>();
}

std::optional<bool> JsonObject::boolean_if(const std::string& field) const {
  const Json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(field, "true or false");
  return value->get<bool>();
}

const std::string& JsonObject::string(const std::string& field) const {
  const Json* value = find(field);
  if (value == nullptr || !value->is_string()) refuse(field, "a string");
  return value->get_ref<const std::string&>();
}

std::optional<std::string> JsonObject::string_if(const std::string& field) const {
  if (find(field) == nullptr) return std::nullopt;
  return string(field);
}

JsonObject JsonObject::object(const std::string& field) const {
  const Json* value = find(field);
  if (value == nullptr || !value->is_object()) refuse(field, "an object");
  if (read_ != nullptr) read_->insert(path_ + field + ".");
  return JsonObject(*value, where_, path_ + field + ".", read_);
}

const Json& JsonObject::list(const std::string& field) const {
  const Json* value = find(field);
  if (value == nullptr || !value->is_array()) refuse(field, "a list");
  return *value;
}

}  // namespace kvscope
