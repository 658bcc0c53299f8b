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

void SplatPainter::collect(const Cloud& cloud, const Camera& camera, const plot::Image& image) {
  splats_.clear();
  const auto width = static_cast<float>(image.width);
  const auto height = static_cast<float>(image.height);
  for (std::size_t s = 0; s < cloud.sets.size(); ++s) {
    for (std::size_t i = cloud.sets[s].begin; i < cloud.sets[s].end; ++i) {
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

void SplatPainter::make_masks(const Cloud& cloud, const SplatStyle& style, bool has_depth) {
  const std::size_t n_looks = cloud.sets.size() * kLevels;
  masks_.assign(n_looks * kPhases * kPhases, {});
  reach_.assign(n_looks, 0.0f);
  for (std::size_t look = 0; look < n_looks; ++look) {
    const CloudSet& set = cloud.sets[look / kLevels];
    const auto level = static_cast<int>(look % kLevels);
    if (!has_depth && level != kLevels - 1) continue;
    const float front = has_depth ? (static_cast<float>(level) + 0.5f) / kLevels : 1.0f;
    const float radius = std::clamp(
        style.radius * set.size * (kBackSize + (1.0f - kBackSize) * front), 0.3f, kMostReach - 2);
    const float opacity = set.opacity * (kBackOpacity + (1.0f - kBackOpacity) * front);
    const float reach = std::ceil(radius + 0.5f);
    const int side = 2 * static_cast<int>(reach) + 1;
    reach_[look] = reach;
    for (int py = 0; py < kPhases; ++py) {
      for (int px = 0; px < kPhases; ++px) {
        Mask& mask = masks_[(look * kPhases + static_cast<std::size_t>(py)) * kPhases +
                            static_cast<std::size_t>(px)];
        mask.side = side;
        mask.weight.resize(static_cast<std::size_t>(side) * static_cast<std::size_t>(side));
        for (int y = 0; y < side; ++y) {
          for (int x = 0; x < side; ++x) {
            // Centres of pixels lie at .5; the disc's centre at the middle of its phase.
            const float cx = (static_cast<float>(px) + 0.5f) / kPhases;
            const float cy = (static_cast<float>(py) + 0.5f) / kPhases;
            const float dx = static_cast<float>(x) - reach + 0.5f - cx;
            const float dy = static_cast<float>(y) - reach + 0.5f - cy;
            const float cover =
                std::clamp(radius + 0.5f - std::sqrt(dx * dx + dy * dy), 0.0f, 1.0f);
            mask.weight[static_cast<std::size_t>(y * side + x)] =
                static_cast<std::uint16_t>(std::lround(256.0f * cover * opacity));
          }
        }
      }
    }
  }
}

void SplatPainter::stamp(const Splat& splat, std::uint32_t colour, plot::Image& image) const {
  const float fx = std::floor(splat.x);
  const float fy = std::floor(splat.y);
  const auto phase = [](float part) {
    return std::clamp(static_cast<int>(part * kPhases), 0, kPhases - 1);
  };
  const Mask& mask = masks_[(static_cast<std::size_t>(splat.look) * kPhases +
                             static_cast<std::size_t>(phase(splat.y - fy))) *
                                kPhases +
                            static_cast<std::size_t>(phase(splat.x - fx))];
  const int reach = static_cast<int>(reach_[splat.look]);
  const int left = static_cast<int>(fx) - reach;
  const int top = static_cast<int>(fy) - reach;
  const int x0 = std::max(0, -left);
  const int x1 = std::min(mask.side, image.width - left);
  const int y0 = std::max(0, -top);
  const int y1 = std::min(mask.side, image.height - top);
  for (int y = y0; y < y1; ++y) {
    const std::uint16_t* weight = mask.weight.data() + y * mask.side;
    std::uint8_t* pixel =
        image.rgba.data() + 4 * (static_cast<std::ptrdiff_t>(top + y) * image.width + left + x0);
    for (int x = x0; x < x1; ++x, pixel += 4) {
      if (weight[x] == 0) continue;
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
  collect(cloud, camera, image);
  make_masks(cloud, style, !camera.is_flat());
  if (!camera.is_flat()) sort_by_depth();
  for (const Splat& splat : splats_) {
    stamp(splat, packed_bytes(cloud.colour[splat.point]), image);
  }
}

}  // namespace kvscope::gui
