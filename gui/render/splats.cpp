#include "gui/render/splats.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kvscope::gui {

namespace {

constexpr int kLevels = 16;  // of depth
constexpr int kPhases = 4;   // places of a centre inside a pixel, each way
constexpr float kBackSize = 0.6f;
constexpr float kBackOpacity = 0.35f;
constexpr float kMostReach = 64.0f;  // no point is larger, whatever the scale

std::uint32_t packed_bytes(plot::Colour c) {
  const std::uint8_t bytes[4] = {c.r, c.g, c.b, 255};
  std::uint32_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

/// (below * (256 - weight) + above * weight) / 256 in all four bytes: two at a time.
std::uint32_t mixed(std::uint32_t below, std::uint32_t above, std::uint32_t weight) {
  constexpr std::uint32_t kEven = 0x00ff00ffu;
  const std::uint32_t rest = 256 - weight;
  const std::uint32_t even = ((below & kEven) * rest + (above & kEven) * weight) >> 8;
  const std::uint32_t odd = ((below >> 8) & kEven) * rest + ((above >> 8) & kEven) * weight;
  return (even & kEven) | (odd & ~kEven);
}

int level_of(float depth) {
  return std::clamp(static_cast<int>(depth * kLevels), 0, kLevels - 1);
}

}  // namespace

float splat_radius(std::size_t n_points, float scale) {
  const double n = std::max<double>(1000.0, static_cast<double>(n_points));
  const double radius = 2.6 * std::pow(1000.0 / n, 0.18);
  return static_cast<float>(std::max(0.9, radius)) * scale;
}

void SplatPainter::collect(const Cloud& cloud, const Camera& camera, std::size_t stride,
                           const plot::Image& image) {
  splats_.clear();
  const auto width = static_cast<float>(image.width);
  const auto height = static_cast<float>(image.height);
  for (std::size_t s = 0; s < cloud.sets.size(); ++s) {
    for (std::size_t i = cloud.sets[s].begin; i < cloud.sets[s].end; i += stride) {
      const auto [x, y, depth] = camera.project(cloud.at[i]);
      if (!(x > -kMostReach && x < width + kMostReach && y > -kMostReach &&
            y < height + kMostReach)) {
        continue;
      }
      const auto look = s * kLevels + static_cast<std::size_t>(level_of(depth));
      splats_.push_back({x, y, static_cast<std::uint32_t>(i), static_cast<std::uint16_t>(look)});
    }
  }
}

void SplatPainter::sort_by_depth() {
  std::size_t first[kLevels + 1] = {};
  for (const Splat& splat : splats_) ++first[splat.look % kLevels + 1];
  for (int level = 0; level < kLevels; ++level) first[level + 1] += first[level];
  sorted_.resize(splats_.size());
  for (const Splat& splat : splats_) sorted_[first[splat.look % kLevels]++] = splat;
  splats_.swap(sorted_);
}

SplatPainter::Mask SplatPainter::make_mask(float radius, float opacity, float centre_x,
                                           float centre_y) {
  // Pixels have their middles at .5; the edge fades over one pixel.
  const float reach = radius + 0.5f;
  const auto first = [&](float centre) { return static_cast<int>(std::floor(centre - reach)); };
  const auto end = [&](float centre) { return static_cast<int>(std::ceil(centre + reach)); };
  Mask mask{.left = first(centre_x), .top = first(centre_y)};
  mask.width = end(centre_x) - mask.left;
  mask.height = end(centre_y) - mask.top;
  for (int y = 0; y < mask.height; ++y) {
    for (int x = 0; x < mask.width; ++x) {
      const float dx = static_cast<float>(mask.left + x) + 0.5f - centre_x;
      const float dy = static_cast<float>(mask.top + y) + 0.5f - centre_y;
      const float cover = std::clamp(reach - std::sqrt(dx * dx + dy * dy), 0.0f, 1.0f);
      mask.weight.push_back(static_cast<std::uint16_t>(std::lround(256.0f * cover * opacity)));
    }
  }
  return mask;
}

void SplatPainter::make_masks(const Cloud& cloud, const SplatStyle& style, bool has_depth) {
  const std::size_t n_looks = cloud.sets.size() * kLevels;
  masks_.assign(n_looks * kPhases * kPhases, {});
  for (std::size_t look = 0; look < n_looks; ++look) {
    const CloudSet& set = cloud.sets[look / kLevels];
    const auto level = static_cast<int>(look % kLevels);
    if (!has_depth && level != kLevels - 1) continue;
    const float front = has_depth ? (static_cast<float>(level) + 0.5f) / kLevels : 1.0f;
    const float radius = std::clamp(
        style.radius * set.size * (kBackSize + (1.0f - kBackSize) * front), 0.3f, kMostReach - 2);
    const float opacity = set.opacity * (kBackOpacity + (1.0f - kBackOpacity) * front);
    for (std::size_t phase = 0; phase < kPhases * kPhases; ++phase) {
      const auto centre = [](std::size_t part) {
        return (static_cast<float>(part) + 0.5f) / kPhases;
      };
      masks_[look * kPhases * kPhases + phase] =
          make_mask(radius, opacity, centre(phase % kPhases), centre(phase / kPhases));
    }
  }
}

void SplatPainter::stamp(const Splat& splat, std::uint32_t colour, plot::Image& image) const {
  const float fx = std::floor(splat.x);
  const float fy = std::floor(splat.y);
  const auto phase = [](float part) {
    return static_cast<std::size_t>(std::clamp(static_cast<int>(part * kPhases), 0, kPhases - 1));
  };
  const Mask& mask =
      masks_[(splat.look * kPhases + phase(splat.y - fy)) * kPhases + phase(splat.x - fx)];
  const int left = static_cast<int>(fx) + mask.left;
  const int top = static_cast<int>(fy) + mask.top;
  const int x0 = std::max(0, -left);
  const int x1 = std::min(mask.width, image.width - left);
  const int y0 = std::max(0, -top);
  const int y1 = std::min(mask.height, image.height - top);
  for (int y = y0; y < y1; ++y) {
    const std::uint16_t* weight = mask.weight.data() + y * mask.width;
    std::uint8_t* pixel =
        image.rgba.data() + 4 * (static_cast<std::ptrdiff_t>(top + y) * image.width + left + x0);
    for (int x = x0; x < x1; ++x, pixel += 4) {
      std::uint32_t below = 0;
      std::memcpy(&below, pixel, sizeof below);
      const std::uint32_t now = mixed(below, colour, weight[x]);
      std::memcpy(pixel, &now, sizeof now);
    }
  }
}

void SplatPainter::paint(const Cloud& cloud, const Camera& camera, const SplatStyle& style,
                         plot::Image& image) {
  const std::uint32_t ground = packed_bytes(style.ground);
  for (std::size_t i = 0; i < image.rgba.size(); i += 4) {
    std::memcpy(image.rgba.data() + i, &ground, sizeof ground);
  }
  if (cloud.at.empty() || image.width <= 0 || image.height <= 0) return;
  collect(cloud, camera, std::max<std::size_t>(1, style.stride), image);
  make_masks(cloud, style, !camera.is_flat());
  if (!camera.is_flat()) sort_by_depth();
  for (const Splat& splat : splats_) {
    stamp(splat, packed_bytes(cloud.colour[splat.point]), image);
  }
}

}  // namespace kvscope::gui
