// Notes of stories: the few marks that they may hold, as HTML and as plain words.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/escape.hpp"
#include "notebooks_export/story.hpp"

namespace kvscope {

namespace {

bool may_link(std::string_view address) {
  return address.starts_with("https://") || address.starts_with("http://") ||
         address.starts_with("mailto:");
}

/// Calls words(text), bold(text), code(text) and link(text, address) in the order of the note; a
/// mark that is not closed is text.
template <class Words, class Bold, class Code, class Link>
void read_note(std::string_view note, Words&& words, Bold&& bold, Code&& code, Link&& link) {
  std::size_t plain = 0;
  std::size_t at = 0;
  const auto flush = [&] {
    if (at > plain) words(note.substr(plain, at - plain));
  };
  while (at < note.size()) {
    const std::string_view rest = note.substr(at);
    const std::string_view sign = rest.starts_with("**") ? "**" : rest.starts_with('`') ? "`" : "";
    if (!sign.empty()) {
      const std::size_t end = rest.find(sign, sign.size());
      const std::string_view inner =
          end == std::string_view::npos ? "" : rest.substr(sign.size(), end - sign.size());
      if (!inner.empty() && inner.find("\n\n") == std::string_view::npos) {
        flush();
        sign == "`" ? code(inner) : bold(inner);
        plain = at += end + sign.size();
        continue;
      }
      at += sign.size();
      continue;
    }
    if (rest.starts_with('[')) {
      const std::size_t middle = rest.find("](");
      const std::size_t end = middle == std::string_view::npos ? middle : rest.find(')', middle);
      const std::string_view address =
          end == std::string_view::npos ? "" : rest.substr(middle + 2, end - middle - 2);
      if (middle != std::string_view::npos && middle > 1 && may_link(address)) {
        flush();
        link(rest.substr(1, middle - 1), address);
        plain = at += end + 1;
        continue;
      }
    }
    ++at;
  }
  at = note.size();
  flush();
}

}  // namespace

std::string note_html(std::string_view note) {
  std::string html;
  std::size_t at = 0;
  while (at < note.size()) {
    const std::size_t end = std::min(note.find("\n\n", at), note.size());
    const std::string_view paragraph = note.substr(at, end - at);
    at = end + 2;
    if (paragraph.find_first_not_of(" \t\r\n") == std::string_view::npos) continue;
    html += "<p>";
    read_note(
        paragraph, [&](std::string_view text) { html += xml_escape(text); },
        [&](std::string_view text) { html += "<b>" + xml_escape(text) + "</b>"; },
        [&](std::string_view text) { html += "<code>" + xml_escape(text) + "</code>"; },
        [&](std::string_view text, std::string_view address) {
          html += fmt::format("<a rel=\"noopener noreferrer\" href=\"{}\">{}</a>",
                              xml_escape(address), xml_escape(text));
        });
    html += "</p>\n";
  }
  return html;
}

std::string note_words(std::string_view note) {
  std::string words;
  const auto add = [&](std::string_view text) {
    for (const char sign : text) {
      const bool is_blank = sign == '\n' || sign == '\r' || sign == '\t' || sign == ' ';
      if (!is_blank) {
        words += sign;
      } else if (!words.empty() && words.back() != ' ') {
        words += ' ';
      }
    }
  };
  read_note(note, add, add, add, [&](std::string_view text, std::string_view) { add(text); });
  return words;
}

}  // namespace kvscope
