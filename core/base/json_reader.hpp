// Reading JSON that somebody else wrote: every refusal names the file, the field, what was expected
// and what was found.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace kvscope {

/// `text` in double quotes for a message: control bytes and bytes that are not ASCII escaped, cut
/// after `max_length` bytes.
std::string quote(std::string_view text, std::size_t max_length = 80);

/// Brackets nest at most this deep in any JSON that is read: copying, printing and walking through
/// values may then recurse, and indentation stays small beside the text.
inline constexpr std::size_t kMostJsonDepth = 64;

/// Parses JSON in time that grows with its length. A key that occurs twice in one object is
/// refused, because readers disagree on which one counts, and so are brackets nested deeper than
/// kMostJsonDepth. `where` names the file. Throws FormatError. Every text from outside goes through
/// here; tests/architecture holds the rule.
nlohmann::json parse_json(std::string_view text, const std::string& where);

/// The same with the fields of objects in the order of the text.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where);

/// "a string", "the number 7", "a list of 3": what a value is, in a message's words.
std::string describe(const nlohmann::json& value);

/// The fields that somebody looked at, by their full names ("rope_scaling.factor").
using FieldsRead = std::set<std::string, std::less<>>;

/// A typed look at one JSON object; the object must outlive it.
class JsonObject {
 public:
  /// `where` names the file; `path` is the object's place in it ("" for the top, "rope_scaling.",
  /// ...) and goes in front of field names. Throws FormatError if `value` is not an object.
  /// `read` keeps what is looked at, here and in the objects that object() returns, for unread().
  JsonObject(const nlohmann::json& value, std::string where, std::string path = "",
             FieldsRead* read = nullptr);

  /// The field's value, or null if the field is absent or JSON null.
  const nlohmann::json* find(const std::string& field) const;
  /// True if the field is there, null or not.
  bool has(const std::string& field) const;
  /// The field's value; throws FormatError if it is absent or null.
  const nlohmann::json& require(const std::string& field) const;

  /// An integer in [low, high]; FormatError otherwise. The optional forms return `fallback` if the
  /// field is absent or null.
  std::int64_t integer(const std::string& field, std::int64_t low, std::int64_t high) const;
  std::int64_t integer_or(const std::string& field, std::int64_t low, std::int64_t high,
                          std::int64_t fallback) const;
  /// A finite number in [low, high].
  double number(const std::string& field, double low, double high) const;
  double number_or(const std::string& field, double low, double high, double fallback) const;
  bool boolean_or(const std::string& field, bool fallback) const;
  /// The same, empty if the field is absent or null; a number is any finite one.
  std::optional<std::int64_t> integer_if(const std::string& field, std::int64_t low,
                                         std::int64_t high) const;
  std::optional<double> number_if(const std::string& field) const;
  std::optional<bool> boolean_if(const std::string& field) const;
  const std::string& string(const std::string& field) const;
  std::optional<std::string> string_if(const std::string& field) const;
  /// The field as an object of its own.
  JsonObject object(const std::string& field) const;
  /// The field as a list.
  const nlohmann::json& list(const std::string& field) const;

  /// Full names of the fields that nobody looked at, down to the fields of objects that object()
  /// returned, without those that ask for nothing: null, false, empty ones.
  std::vector<std::string> unread() const;

  const nlohmann::json& value() const { return *value_; }
  const std::string& where() const { return where_; }
  /// "rope_scaling.factor (config.json)": a field's full name for messages.
  std::string name_of(const std::string& field) const;
  /// Throws FormatError "<name_of(field)>: expected <expected>, found <description>".
  [[noreturn]] void refuse(const std::string& field, std::string_view expected) const;

 private:
  const nlohmann::json* value_;
  std::string where_;
  std::string path_;
  FieldsRead* read_;
};

}  // namespace kvscope
