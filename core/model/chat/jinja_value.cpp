#include "core/model/chat/jinja_value.hpp"

#include <algorithm>

#include "core/base/error.hpp"

namespace kvscope::jinja {

namespace {

constexpr std::int64_t kMostWeight = std::int64_t{1} << 50;

template <class Whole>
void add_part(const Value& part, Whole& whole) {
  whole.depth = std::max(whole.depth, 1 + part.depth());
  whole.weight = std::min(kMostWeight, whole.weight + part.weight());
}

void check_depth(int depth) {
  if (depth > kMostValueDepth)
    throw FormatError("a value nests more than {} levels deep", kMostValueDepth);
}

}  // namespace

const Value* Mapping::find(std::string_view key) const {
  const auto at = std::find_if(entries.begin(), entries.end(),
                               [&](const Entry& entry) { return entry.first == key; });
  return at == entries.end() ? nullptr : &at->second;
}

Value Value::list(std::vector<Value> items) {
  auto list = std::make_shared<List>();
  for (const Value& item : items) add_part(item, *list);
  check_depth(list->depth);
  list->items = std::move(items);
  return Held(std::shared_ptr<const List>(std::move(list)));
}

Value Value::mapping(std::vector<Entry> entries) {
  auto mapping = std::make_shared<Mapping>();
  for (const Entry& entry : entries) add_part(entry.second, *mapping);
  check_depth(mapping->depth);
  mapping->entries = std::move(entries);
  return Held(std::shared_ptr<const Mapping>(std::move(mapping)));
}

const std::string* Value::as_text() const {
  const Text* text = std::get_if<Text>(&held_);
  return text == nullptr ? nullptr : text->get();
}

const List* Value::as_list() const {
  const auto* list = std::get_if<std::shared_ptr<const List>>(&held_);
  return list == nullptr ? nullptr : list->get();
}

const Mapping* Value::as_mapping() const {
  if (const Namespace* space = as_namespace()) return &space->fields;
  const auto* mapping = std::get_if<std::shared_ptr<const Mapping>>(&held_);
  return mapping == nullptr ? nullptr : mapping->get();
}

Namespace* Value::as_namespace() const {
  const auto* space = std::get_if<std::shared_ptr<Namespace>>(&held_);
  return space == nullptr ? nullptr : space->get();
}

bool Value::is_true() const {
  if (is_undefined() || is_none()) return false;
  if (const bool* truth = as_truth()) return *truth;
  if (const std::string* text = as_text()) return !text->empty();
  if (const List* list = as_list()) return !list->items.empty();
  if (as_namespace() != nullptr) return true;
  if (const Mapping* mapping = as_mapping()) return !mapping->entries.empty();
  double number = 0.0;
  return !get_number(number) || number != 0.0;
}

int Value::depth() const {
  if (const List* list = as_list()) return list->depth;
  if (as_namespace() != nullptr) return 0;
  if (const Mapping* mapping = as_mapping()) return mapping->depth;
  return 0;
}

std::int64_t Value::weight() const {
  if (const std::string* text = as_text()) return 1 + static_cast<std::int64_t>(text->size() / 16);
  if (const List* list = as_list()) return list->weight;
  if (as_namespace() != nullptr) return 1;
  if (const Mapping* mapping = as_mapping()) return mapping->weight;
  return 1;
}

std::string_view Value::kind() const {
  constexpr std::string_view kKinds[] = {
      "nothing", "none",   "a truth value", "a whole number", "a number",
      "a text",  "a list", "a mapping",     "a namespace",    "a function"};
  return kKinds[held_.index()];
}

bool Value::get_number(double& number) const {
  if (const bool* truth = as_truth())
    number = *truth ? 1.0 : 0.0;
  else if (const std::int64_t* integer = as_integer())
    number = static_cast<double>(*integer);
  else if (const double* real = as_number())
    number = *real;
  else
    return false;
  return true;
}

bool are_equal(const Value& a, const Value& b) {
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_integer() && b.is_integer()) return *a.as_integer() == *b.as_integer();
  double x = 0.0;
  double y = 0.0;
  if (a.get_number(x) || b.get_number(x)) return a.get_number(x) && b.get_number(y) && x == y;
  if (a.as_text() != nullptr || b.as_text() != nullptr)
    return a.as_text() != nullptr && b.as_text() != nullptr && *a.as_text() == *b.as_text();
  if (a.as_list() != nullptr && b.as_list() != nullptr) {
    const auto& left = a.as_list()->items;
    const auto& right = b.as_list()->items;
    return std::equal(left.begin(), left.end(), right.begin(), right.end(), are_equal);
  }
  if (a.as_namespace() != nullptr || b.as_namespace() != nullptr)
    return a.as_namespace() == b.as_namespace();
  if (a.as_mapping() != nullptr && b.as_mapping() != nullptr) {
    const Mapping& left = *a.as_mapping();
    const Mapping& right = *b.as_mapping();
    return left.entries.size() == right.entries.size() &&
           std::all_of(left.entries.begin(), left.entries.end(), [&](const Entry& entry) {
             const Value* other = right.find(entry.first);
             return other != nullptr && are_equal(entry.second, *other);
           });
  }
  const Function* f = a.as_function();
  const Function* g = b.as_function();
  return f != nullptr && g != nullptr && f->macro == g->macro && f->name == g->name;
}

bool is_less(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) return *a.as_integer() < *b.as_integer();
  double x = 0.0;
  double y = 0.0;
  if (a.get_number(x) && b.get_number(y)) return x < y;
  if (a.as_text() != nullptr && b.as_text() != nullptr) return *a.as_text() < *b.as_text();
  if (a.as_list() != nullptr && b.as_list() != nullptr) {
    const auto& left = a.as_list()->items;
    const auto& right = b.as_list()->items;
    return std::lexicographical_compare(left.begin(), left.end(), right.begin(), right.end(),
                                        is_less);
  }
  throw FormatError("{} and {} have no order", a.kind(), b.kind());
}

}  // namespace kvscope::jinja
