#include "analysis/plot/rich_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/base/escape.hpp"
#include "core/base/lists.hpp"
#include "core/base/utf8.hpp"

namespace kvscope::plot {

namespace {

constexpr double kScriptScale = 0.7;
constexpr double kSuperscriptRise = 0.36;
constexpr double kSubscriptRise = -0.18;

void append(std::vector<TextRun>& runs, std::string_view text, double scale, double rise) {
  if (text.empty()) return;
  if (!runs.empty() && runs.back().scale == scale && runs.back().rise == rise) {
    runs.back().text += text;
  } else {
    runs.push_back({std::string(text), scale, rise});
  }
}

/// What a script sign at `at - 1` raises or lowers: a group or one character. Moves `at` past it.
std::string_view take_script(std::string_view label, std::size_t& at) {
  if (at >= label.size()) return {};
  if (label[at] == '{') {
    const std::size_t end = std::min(label.find('}', at), label.size());
    const std::string_view group = label.substr(at + 1, end - at - 1);
    at = std::min(end + 1, label.size());
    return group;
  }
  const std::size_t n = std::max<std::size_t>(1, well_formed_size(label, at));
  at += n;
  return label.substr(at - n, n);
}

/// Words of letters inside a formula are names, not products: upright.
std::string tex_words(std::string_view words) {
  std::string out;
  for (std::size_t at = 0; at < words.size();) {
    std::size_t end = at;
    while (end < words.size() && std::isalpha(static_cast<unsigned char>(words[end]))) ++end;
    if (end - at >= 2) {
      out += "\\mathrm{";
      out += words.substr(at, end - at);
      out += "}";
      at = end;
      continue;
    }
    const std::size_t n = std::max<std::size_t>(1, well_formed_size(words, at));
    const std::string_view c = words.substr(at, n);
    out += c == " " ? "\\ " : tex_character(c, /*in_math=*/true);
    at += n;
  }
  return out;
}

/// The formula as parse_rich understands it. Nothing of it reaches TeX as a command: labels hold
/// names from files, and "$\^^69nput$" is one.
std::string tex_formula(std::string_view formula) {
  std::string out;
  bool has_base = false;
  bool has_script[2] = {false, false};  // below, above
  for (std::size_t at = 0; at < formula.size();) {
    const char sign = formula[at];
    if (sign != '_' && sign != '^') {
      const std::size_t end = std::min(formula.find_first_of("_^", at), formula.size());
      out += tex_words(formula.substr(at, end - at));
      has_base = true;
      has_script[0] = has_script[1] = false;
      at = end;
      continue;
    }
    ++at;
    const std::string_view script = take_script(formula, at);
    bool& is_taken = has_script[sign == '^' ? 1 : 0];
    if (!has_base || is_taken) {  // TeX refuses a second script of one kind
      out += "{}";
      has_script[0] = has_script[1] = false;
    }
    has_base = is_taken = true;
    const bool is_plain =
        script.size() == 1 && std::isalnum(static_cast<unsigned char>(script[0])) != 0;
    out += is_plain ? fmt::format("{}{}", sign, script)
                    : fmt::format("{}{{{}}}", sign, tex_words(script));
  }
  return out;
}

}  // namespace

std::string verbatim(std::string_view text) {
  std::string label;
  for (const char c : text) label += c == '$' ? std::string("$$") : std::string(1, c);
  return label;
}

std::vector<TextRun> parse_rich(std::string_view label) {
  std::vector<TextRun> runs;
  bool in_formula = false;
  for (std::size_t at = 0; at < label.size();) {
    const char c = label[at];
    if (c == '$' && !in_formula && label.substr(at).starts_with("$$")) {
      append(runs, "$", 1.0, 0.0);
      at += 2;
    } else if (c == '$') {
      in_formula = !in_formula;
      ++at;
    } else if (in_formula && (c == '_' || c == '^')) {
      ++at;
      append(runs, take_script(label, at), kScriptScale,
             c == '^' ? kSuperscriptRise : kSubscriptRise);
    } else {
      const std::size_t n = std::max<std::size_t>(1, well_formed_size(label, at));
      append(runs, label.substr(at, n), 1.0, 0.0);
      at += n;
    }
  }
  return runs;
}

std::string plain_text(std::string_view label) {
  std::string out;
  for (const TextRun& run : parse_rich(label)) out += run.text;
  return out;
}

std::string tex_text(std::string_view text) {
  const std::string label = clean_text(text);
  std::string out;
  for (std::size_t at = 0; at < label.size();) {
    const std::size_t dollar = std::min(label.find('$', at), label.size());
    out += tex_escape(std::string_view(label).substr(at, dollar - at));
    if (dollar == label.size()) break;
    if (std::string_view(label).substr(dollar).starts_with("$$")) {
      out += tex_escape("$");
      at = dollar + 2;
      continue;
    }
    const std::size_t end = std::min(label.find('$', dollar + 1), label.size());
    out += "$" + tex_formula(std::string_view(label).substr(dollar + 1, end - dollar - 1)) + "$";
    at = std::min(end + 1, label.size());
  }
  return out;
}

std::string tex_lines(std::string_view label) {
  std::string out;
  for (const std::string& part : split_words(label, '\n')) {
    const std::string line = tex_text(part);
    out += (out.empty() ? "" : "\\\\{}") + (line.empty() ? std::string("~") : line);
  }
  return out;
}

double rich_width(const TextMetrics& metrics, std::string_view label, double size) {
  double width = 0.0;
  for (const TextRun& run : parse_rich(label)) width += metrics.width(run.text, size * run.scale);
  return width;
}

void draw_rich(Canvas& canvas, Point at, std::string_view label, const TextStyle& style) {
  const double angle = style.rotation * std::numbers::pi / 180.0;
  const Point along{std::cos(angle), -std::sin(angle)};
  const Point up{-std::sin(angle), -std::cos(angle)};
  const double width = rich_width(canvas.metrics(), label, style.size);
  double offset = style.align == Align::left     ? 0.0
                  : style.align == Align::centre ? -0.5 * width
                                                 : -width;
  for (const TextRun& run : parse_rich(label)) {
    TextStyle piece = style;
    piece.align = Align::left;
    piece.size = style.size * run.scale;
    const double rise = run.rise * style.size;
    canvas.text({at.x + offset * along.x + rise * up.x, at.y + offset * along.y + rise * up.y},
                run.text, piece);
    offset += canvas.metrics().width(run.text, piece.size);
  }
}

std::vector<std::string> wrap_rich(const TextMetrics& metrics, std::string_view label, double size,
                                   double width) {
  std::vector<std::string> lines;
  std::string line;
  bool in_formula = false;
  std::string word;
  const auto flush_word = [&] {
    if (word.empty()) return;
    const std::string joined = line.empty() ? word : line + " " + word;
    if (!line.empty() && rich_width(metrics, joined, size) > width) {
      lines.push_back(std::move(line));
      line = word;
    } else {
      line = joined;
    }
    word.clear();
  };
  for (char c : label) {
    if (c == '$') in_formula = !in_formula;
    if (c == '\n' || (c == ' ' && !in_formula)) {
      flush_word();
      if (c == '\n') {
        lines.push_back(std::move(line));
        line.clear();
      }
    } else {
      word += c;
    }
  }
  flush_word();
  if (!line.empty() || lines.empty()) lines.push_back(line);
  return lines;
}

}  // namespace kvscope::plot
