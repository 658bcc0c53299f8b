// Colours, and the tables that turn numbers into them.
#pragma once

#include <cstdint>
#include <string>

namespace kvscope::plot {

/// sRGB with opacity.
struct Colour {
  std::uint8_t r = 0;
  std::uint8_t g = 0;
  std::uint8_t b = 0;
  double alpha = 1.0;
  bool operator==(const Colour&) const = default;
};

/// The nearest byte to v in [0, 255]; pictures ask this millions of times, which std::lround makes
/// felt.
constexpr std::uint8_t nearest_byte(double v) {
  return static_cast<std::uint8_t>(v + 0.5);
}

/// 0x0072B2 to a colour.
constexpr Colour colour_from_rgb(std::uint32_t rgb) {
  return {static_cast<std::uint8_t>(rgb >> 16), static_cast<std::uint8_t>(rgb >> 8),
          static_cast<std::uint8_t>(rgb), 1.0};
}

constexpr Colour with_alpha(Colour colour, double alpha) {
  colour.alpha = alpha;
  return colour;
}

/// `top` seen through onto an opaque ground: for formats and places without transparency.
Colour blend(Colour top, Colour ground);

/// "#0072b2".
std::string hex(Colour colour);

/// Contrast of two colours (WCAG 2.1), 1 to 21; opacity is ignored.
double contrast(Colour a, Colour b);

/// How numbers become colours.
enum class ColourMap {
  sequential,  // dark violet over green to yellow: lightness rises evenly, safe for colour
               // blindness
  diverging,   // blue over near-white to vermillion: for signed numbers around a centre
};

/// The colour at t in [0, 1] (clamped): 256 steps, interpolated in OKLab so that equal steps look
/// equal.
Colour colour_at(ColourMap map, double t);

}  // namespace kvscope::plot
