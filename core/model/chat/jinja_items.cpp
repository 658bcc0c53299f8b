// What a value holds: its fields, items and slices, going through it, looking for something in it.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/utf8.hpp"
#include "core/model/chat/jinja_run.hpp"

namespace kvscope::jinja {

Value Run::attribute(const Value& of, const std::string& name) {
  if (of.is_undefined()) throw FormatError("there is no {} of an undefined value", name);
  const Mapping* mapping = of.as_mapping();
  if (mapping == nullptr) return Value::undefined(name);
  pay(static_cast<std::int64_t>(mapping->entries.size() / 4));
  const Value* found = mapping->find(name);
  return found != nullptr ? *found : Value::undefined(name);
}

Value Run::item(const Value& of, const Value& key) {
  if (of.is_undefined()) throw FormatError("there is no item of an undefined value");
  if (const std::string* name = key.as_text()) return attribute(of, *name);
  const std::int64_t* place = key.as_integer();
  if (place == nullptr) return Value::undefined("an item");
  const auto at = [&](std::int64_t n) { return *place < 0 ? *place + n : *place; };
  if (const List* list = of.as_list()) {
    const auto n = static_cast<std::int64_t>(list->items.size());
    if (at(n) < 0 || at(n) >= n) return Value::undefined(fmt::format("item {}", *place));
    return list->items[static_cast<std::size_t>(at(n))];
  }
  if (const std::string* text_of = of.as_text()) {
    pay_text(text_of->size());
    const std::int64_t n = length_of(*text_of);
    if (at(n) < 0 || at(n) >= n) return Value::undefined(fmt::format("item {}", *place));
    std::size_t byte = 0;
    for (std::int64_t i = 0; i < at(n); ++i) byte += utf8_char_at(*text_of, byte).size;
    return text(text_of->substr(byte, utf8_char_at(*text_of, byte).size));
  }
  return Value::undefined(fmt::format("item {}", *place));
}

Value Run::attribute_path(const Value& of, const std::string& path) {
  Value value = of;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('.', at), path.size());
    pay(1);
    value = attribute(value, path.substr(at, end - at));
    at = end + 1;
  }
  return value;
}

std::vector<Value> Run::items_of(const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (const List* list = value.as_list()) {
    pay(static_cast<std::int64_t>(list->items.size()));
    return list->items;
  }
  if (const Mapping* mapping = value.as_namespace() ? nullptr : value.as_mapping()) {
    for (const Entry& entry : mapping->entries) items.push_back(text(entry.first));
    return items;
  }
  if (const std::string* of = value.as_text()) {
    pay(static_cast<std::int64_t>(of->size()));
    for (std::size_t at = 0; at < of->size();) {
      const std::size_t size = utf8_char_at(*of, at).size;
      items.push_back(Value::text(of->substr(at, size)));
      at += size;
    }
    return items;
  }
  throw FormatError("{} has no items to go through", value.kind());
}

bool Run::is_in(const Value& value, const Value& container) {
  if (const std::string* text = container.as_text()) {
    pay_text(text->size());
    return text->find(text_argument(value, "in a text")) != std::string::npos;
  }
  if (const Mapping* mapping = container.as_mapping()) {
    pay(static_cast<std::int64_t>(mapping->entries.size()));
    return value.as_text() != nullptr && mapping->find(*value.as_text()) != nullptr;
  }
  for (const Value& item : items_of(container)) {
    pay(std::min(item.weight(), value.weight()));
    if (are_equal(item, value)) return true;
  }
  return false;
}

std::vector<std::int64_t> slice_places(std::int64_t n, std::optional<std::int64_t> begin,
                                       std::optional<std::int64_t> end, std::int64_t step) {
  const auto placed = [&](std::int64_t at, std::int64_t low, std::int64_t high) {
    if (at < 0) at = at < -n ? low : at + n;
    return std::clamp(at, low, high);
  };
  const std::int64_t low = step > 0 ? 0 : -1;
  const std::int64_t high = step > 0 ? n : n - 1;
  std::int64_t at = begin ? placed(*begin, low, high) : step > 0 ? low : high;
  const std::int64_t last = end ? placed(*end, low, high) : step > 0 ? high : low;
  const std::int64_t stride = std::clamp(step, -n - 1, n + 1);
  std::vector<std::int64_t> places;
  for (; step > 0 ? at < last : at > last; at += stride) places.push_back(at);
  return places;
}

Value Run::evaluate_slice(const Expression& node, Scope& scope) {
  const Value of = evaluate(*node.parts[0], scope);
  std::optional<std::int64_t> bounds[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (!node.parts[i + 1]) continue;
    const Value bound = evaluate(*node.parts[i + 1], scope);
    if (!bound.is_none()) bounds[i] = integer_argument(bound, "a slice");
  }
  const std::int64_t step = bounds[2].value_or(1);
  if (step == 0) throw FormatError("a slice has step 0");
  if (const std::string* text_of = of.as_text()) {
    pay_text(8 * text_of->size());
    std::vector<std::string_view> characters;
    for (std::size_t at = 0; at < text_of->size();) {
      const std::size_t size = utf8_char_at(*text_of, at).size;
      characters.push_back(std::string_view(*text_of).substr(at, size));
      at += size;
    }
    std::string out;
    for (const std::int64_t place :
         slice_places(static_cast<std::int64_t>(characters.size()), bounds[0], bounds[1], step))
      out += characters[static_cast<std::size_t>(place)];
    return text(std::move(out));
  }
  const std::vector<Value> items = items_of(of);
  if (of.as_list() == nullptr) throw FormatError("{} has no slices", of.kind());
  std::vector<Value> out;
  for (const std::int64_t place :
       slice_places(static_cast<std::int64_t>(items.size()), bounds[0], bounds[1], step))
    out.push_back(items[static_cast<std::size_t>(place)]);
  return Value::list(std::move(out));
}

}  // namespace kvscope::jinja
