// Pictures as one animated PNG, which browsers, slides and Markdown pages play as they show any
// picture.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kvscope {

/// `frames`: PNG files of one size and kind, at least one; each stands for `milliseconds`, and
/// after the last comes the first again. Viewers without animation show the first. Throws
/// FormatError for bytes that are no such files, ConfigError for more milliseconds than 65,535.
/// Source: PNG Specification (Third Edition), section 11.3.5.
std::string animated_png(std::span<const std::string_view> frames, int milliseconds);

}  // namespace kvscope
