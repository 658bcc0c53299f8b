#include "analysis/plot/colour.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace kvscope::plot {

namespace {

double linear_of(std::uint8_t channel) {
  const double c = channel / 255.0;
  return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
}

std::uint8_t channel_of(double linear) {
  const double l = std::clamp(linear, 0.0, 1.0);
  const double c = l <= 0.0031308 ? 12.92 * l : 1.055 * std::pow(l, 1.0 / 2.4) - 0.055;
  return nearest_byte(255.0 * c);
}

/// OKLab (B. Ottosson, 2020): Euclidean distances in it are close to seen differences.
struct Lab {
  double l, a, b;
};

Lab lab_of(Colour colour) {
  const double r = linear_of(colour.r);
  const double g = linear_of(colour.g);
  const double b = linear_of(colour.b);
  const double l = std::cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const double m = std::cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const double s = std::cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return {0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
          1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
          0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s};
}

Colour colour_of(Lab lab) {
  const double l = std::pow(lab.l + 0.3963377774 * lab.a + 0.2158037573 * lab.b, 3.0);
  const double m = std::pow(lab.l - 0.1055613458 * lab.a - 0.0638541728 * lab.b, 3.0);
  const double s = std::pow(lab.l - 0.0894841775 * lab.a - 1.2914855480 * lab.b, 3.0);
  return {channel_of(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
          channel_of(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
          channel_of(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s), 1.0};
}

using Table = std::array<Colour, 256>;

/// Evenly spaced anchors, joined by straight lines in OKLab.
Table table_between(std::span<const std::uint32_t> anchors) {
  Table table;
  const double last = static_cast<double>(anchors.size() - 1);
  for (std::size_t i = 0; i < table.size(); ++i) {
    const double at = last * static_cast<double>(i) / 255.0;
    const auto left = std::min(static_cast<std::size_t>(at), anchors.size() - 2);
    const double t = at - static_cast<double>(left);
    const Lab a = lab_of(colour_from_rgb(anchors[left]));
    const Lab b = lab_of(colour_from_rgb(anchors[left + 1]));
    table[i] = colour_of({a.l + t * (b.l - a.l), a.a + t * (b.a - a.a), a.b + t * (b.b - a.b)});
  }
  return table;
}

/// Relative luminance (WCAG 2.1), 0 black to 1 white; opacity is ignored.
double luminance(Colour colour) {
  return 0.2126 * linear_of(colour.r) + 0.7152 * linear_of(colour.g) + 0.0722 * linear_of(colour.b);
}

}  // namespace

Colour blend(Colour top, Colour ground) {
  const auto mix = [&](std::uint8_t a, std::uint8_t b) {
    return nearest_byte(top.alpha * a + (1.0 - top.alpha) * b);
  };
  return {mix(top.r, ground.r), mix(top.g, ground.g), mix(top.b, ground.b), 1.0};
}

std::string hex(Colour colour) {
  return fmt::format("#{:02x}{:02x}{:02x}", colour.r, colour.g, colour.b);
}

double contrast(Colour a, Colour b) {
  const double x = luminance(a);
  const double y = luminance(b);
  return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

Colour colour_at(ColourMap map, double t) {
  static constexpr std::uint32_t kSequential[] = {0x3B0F54, 0x3F4788, 0x2D708E, 0x20908C,
                                                  0x3DB878, 0x93D741, 0xFDE725};
  static constexpr std::uint32_t kDiverging[] = {0x08407E, 0x3E8EC4, 0xB9D6EA, 0xF4F3F1,
                                                 0xF6C8A8, 0xDE7A3A, 0x9A3A00};
  static const Table sequential = table_between(kSequential);
  static const Table diverging = table_between(kDiverging);
  const double clamped = t >= 0.0 ? std::min(t, 1.0) : 0.0;  // NaN to 0
  const std::size_t at = nearest_byte(255.0 * clamped);
  return (map == ColourMap::sequential ? sequential : diverging)[at];
}

}  // namespace kvscope::plot
