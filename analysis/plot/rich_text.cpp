#include "analysis/plot/rich_text.hpp"

#include <array>
#include <cmath>
#include <numbers>
#include <utility>

namespace kvscope::plot {

namespace {

constexpr double kScriptScale = 0.7;
constexpr double kSuperscriptRise = 0.36;
constexpr double kSubscriptRise = -0.18;

/// Bytes of the UTF-8 character at `at`.
std::size_t character_length(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t n = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return std::min(n, text.size() - at);
}

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
  const std::size_t n = character_length(label, at);
  at += n;
  return label.substr(at - n, n);
}

/// Characters that LaTeX knows by name; in text they go into math mode.
constexpr std::array<std::pair<std::string_view, std::string_view>, 30> kTexNames = {{
    {"α", "\\alpha "},   {"β", "\\beta "},  {"γ", "\\gamma "},  {"δ", "\\delta "},
    {"ε", "\\epsilon "}, {"θ", "\\theta "}, {"λ", "\\lambda "}, {"μ", "\\mu "},
    {"π", "\\pi "},      {"ρ", "\\rho "},   {"σ", "\\sigma "},  {"τ", "\\tau "},
    {"Δ", "\\Delta "},   {"Σ", "\\Sigma "}, {"≤", "\\le "},     {"≥", "\\ge "},
    {"−", "-"},          {"×", "\\times "}, {"·", "\\cdot "},   {"∞", "\\infty "},
    {"→", "\\to "},      {"±", "\\pm "},    {"≈", "\\approx "}, {"√", "\\surd "},
    {"∈", "\\in "},      {"ŝ", "\\hat s"},  {"Ŝ", "\\hat S"},   {"‖", "\\|"},
    {"∩", "\\cap "},     {"∪", "\\cup "},
}};

std::string tex_character(std::string_view c, bool in_math) {
  for (const auto& [sign, name] : kTexNames) {
    if (c != sign) continue;
    std::string out(in_math ? "" : "$");
    out += name;
    return out + (in_math ? "" : "$");
  }
  if (c == "–") return in_math ? "-" : "--";
  if (c == "%" || c == "&" || c == "#") return "\\" + std::string(c);
  if (in_math) return std::string(c);
  if (c == "_" || c == "{" || c == "}") return "\\" + std::string(c);
  if (c == "~") return "\\textasciitilde{}";
  if (c == "^") return "\\textasciicircum{}";
  if (c == "\\") return "\\textbackslash{}";
  if (c == "<" || c == ">" || c == "|") return "$" + std::string(c) + "$";
  return std::string(c);
}

/// Words of letters inside a formula are names, not products: upright.
std::string tex_formula(std::string_view formula) {
  std::string out;
  for (std::size_t at = 0; at < formula.size();) {
    std::size_t end = at;
    while (end < formula.size() && std::isalpha(static_cast<unsigned char>(formula[end]))) ++end;
    if (end - at >= 2) {
      out += "\\mathrm{";
      out += formula.substr(at, end - at);
      out += "}";
      at = end;
      continue;
    }
    const std::size_t n = character_length(formula, at);
    const std::string_view c = formula.substr(at, n);
    out += c == " " ? "\\ " : tex_character(c, /*in_math=*/true);
    at += n;
  }
  return out;
}

}  // namespace

std::vector<TextRun> parse_rich(std::string_view label) {
  std::vector<TextRun> runs;
  bool in_formula = false;
  for (std::size_t at = 0; at < label.size();) {
    const char c = label[at];
    if (c == '$') {
      in_formula = !in_formula;
      ++at;
    } else if (in_formula && (c == '_' || c == '^')) {
      ++at;
      append(runs, take_script(label, at), kScriptScale,
             c == '^' ? kSuperscriptRise : kSubscriptRise);
    } else {
      const std::size_t n = character_length(label, at);
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

std::string tex_text(std::string_view label) {
  std::string out;
  for (std::size_t at = 0; at < label.size();) {
    if (label[at] == '$') {
      const std::size_t end = std::min(label.find('$', at + 1), label.size());
      out += "$" + tex_formula(label.substr(at + 1, end - at - 1)) + "$";
      at = std::min(end + 1, label.size());
      continue;
    }
    const std::size_t n = character_length(label, at);
    out += label[at] == '\n' ? "\\\\" : tex_character(label.substr(at, n), /*in_math=*/false);
    at += n;
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
