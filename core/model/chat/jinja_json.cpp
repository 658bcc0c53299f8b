// json.dumps() of a template's values.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/utf8.hpp"
#include "core/model/chat/jinja_run.hpp"

namespace kvscope::jinja {

namespace {

class Json {
 public:
  Json(Run& run, const Arguments& arguments) : run_(run) {
    const auto is_set = [&](std::size_t i, std::string_view name) {
      const Value* value = arguments.find(i, name);
      return value != nullptr && value->is_true();
    };
    ascii_ = is_set(0, "ensure_ascii");
    sorted_ = is_set(3, "sort_keys");
    const Value* indent = arguments.find(1, "indent");
    if (indent != nullptr && !indent->is_none()) {
      const std::int64_t n = std::max<std::int64_t>(0, integer_argument(*indent, "tojson"));
      run.pay(n);
      indent_ = std::string(static_cast<std::size_t>(n), ' ');
      between_items_ = ",";
    }
    const Value* separators = arguments.find(2, "separators");
    if (separators != nullptr && !separators->is_none()) {
      const std::vector<Value> pair = run.items_of(*separators);
      if (pair.size() != 2) throw FormatError("tojson: expected two separators");
      between_items_ = text_argument(pair[0], "tojson");
      behind_key_ = text_argument(pair[1], "tojson");
    }
  }

  void write(const Value& value, std::size_t level) {
    if (value.is_none())
      out += "null";
    else if (const bool* truth = value.as_truth())
      out += *truth ? "true" : "false";
    else if (const std::int64_t* whole = value.as_integer())
      out += fmt::format("{}", *whole);
    else if (const double* number = value.as_number())
      out += python_number(*number);
    else if (const std::string* text = value.as_text())
      write_text(*text);
    else if (const List* list = value.as_list()) {
      write_all('[', ']', list->items.size(), level,
                [&](std::size_t i) { write(list->items[i], level + 1); });
    } else if (const Mapping* mapping = value.as_namespace() ? nullptr : value.as_mapping()) {
      std::vector<const Entry*> entries;
      for (const Entry& entry : mapping->entries) entries.push_back(&entry);
      if (sorted_)
        std::stable_sort(entries.begin(), entries.end(),
                         [](const Entry* a, const Entry* b) { return a->first < b->first; });
      write_all('{', '}', entries.size(), level, [&](std::size_t i) {
        write_text(entries[i]->first);
        out += behind_key_;
        write(entries[i]->second, level + 1);
      });
    } else {
      throw FormatError("tojson: {} is no JSON",
                        value.is_undefined() ? "an undefined value" : value.kind());
    }
  }

  std::string out;

 private:
  void new_line(std::size_t level) {
    if (!indent_) return;
    run_.pay_text(level * indent_->size());
    out += '\n';
    for (std::size_t i = 0; i < level; ++i) out += *indent_;
  }

  template <class WriteItem>
  void write_all(char open, char close, std::size_t n, std::size_t level,
                 const WriteItem& write_item) {
    out += open;
    for (std::size_t i = 0; i < n; ++i) {
      if (i > 0) {
        run_.pay_text(between_items_.size() + behind_key_.size());
        out += between_items_;
      }
      new_line(level + 1);
      write_item(i);
    }
    if (n > 0) new_line(level);
    out += close;
  }

  void write_text(const std::string& text) {
    out += '"';
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Char c = utf8_char_at(text, at);
      const char32_t point = c.code_point;
      constexpr std::u32string_view kShort = U"\"\\\n\r\t\b\f";
      if (const std::size_t i = kShort.find(point); i != std::u32string_view::npos) {
        (out += '\\') += "\"\\nrtbf"[i];
      } else if (point < 0x20 || (ascii_ && point > 0x7E && point < 0x10000)) {
        out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(point));
      } else if (ascii_ && point >= 0x10000) {
        const auto high = static_cast<std::uint32_t>(0xD800 + ((point - 0x10000) >> 10));
        const auto low = static_cast<std::uint32_t>(0xDC00 + ((point - 0x10000) & 0x3FF));
        out += fmt::format("\\u{:04x}\\u{:04x}", high, low);
      } else {
        out.append(text, at, c.size);
      }
      at += c.size;
    }
    out += '"';
  }

  Run& run_;
  bool ascii_ = false;
  bool sorted_ = false;
  std::optional<std::string> indent_;
  std::string between_items_ = ", ";
  std::string behind_key_ = ": ";
};

}  // namespace

std::string json_text(Run& run, const Value& value, const Arguments& arguments) {
  run.pay(value.weight());
  Json json(run, arguments);
  json.write(value, 0);
  return std::move(json.out);
}

}  // namespace kvscope::jinja
