#include "notebooks_export/animated_png.hpp"

#include <boost/crc.hpp>
#include <cstdint>
#include <string_view>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

constexpr std::string_view kPngSignature = "\x89PNG\r\n\x1a\n";

/// Big-endian numbers and chunks, put one after another.
class PngWriter {
 public:
  static std::string u32(std::uint32_t value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
    return bytes;
  }
  static std::string u16(std::uint32_t value) { return u32(value).substr(2); }

  void chunk(std::string_view name, std::string_view data) {
    const std::string body = std::string(name) + std::string(data);
    boost::crc_32_type crc;
    crc.process_bytes(body.data(), body.size());
    out_ += u32(static_cast<std::uint32_t>(data.size())) + body +
            u32(static_cast<std::uint32_t>(crc.checksum()));
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_{kPngSignature};
};

/// What of a PNG file an animation takes.
struct PngParts {
  std::string_view header;  // of IHDR: width, height, kind
  std::string pixels;       // of all IDAT
};

PngParts png_parts(std::string_view file) {
  const auto fail = [](const char* what) -> FormatError {
    return FormatError("animated PNG: a frame is no PNG file: {}", what);
  };
  if (!file.starts_with(kPngSignature)) throw fail("it does not begin like one");
  PngParts parts;
  const auto u32 = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i)
      value = value << 8 | static_cast<unsigned char>(file[at + i]);
    return value;
  };
  for (std::size_t at = kPngSignature.size(); at < file.size();) {
    if (file.size() - at < 12) throw fail("it ends too early");
    const std::size_t n = u32(at);
    if (n > file.size() - at - 12) throw fail("it ends too early");
    const std::string_view name = file.substr(at + 4, 4);
    const std::string_view data = file.substr(at + 8, n);
    if (name == "IHDR") parts.header = data;
    if (name == "IDAT") parts.pixels += data;
    if (name == "PLTE") throw fail("frames with palettes are not joined");
    at += n + 12;
  }
  if (parts.header.size() != 13 || parts.pixels.empty()) throw fail("it has no pixels");
  return parts;
}

}  // namespace

std::string animated_png(std::span<const std::string_view> frames, int milliseconds) {
  if (frames.empty()) throw FormatError("animated PNG: there is no frame");
  if (milliseconds < 0 || milliseconds > 0xffff)
    throw ConfigError("animated PNG: {} ms for a frame, expected 0 to 65535", milliseconds);
  const std::string header(png_parts(frames[0]).header);
  PngWriter out;
  out.chunk("IHDR", header);
  out.chunk("acTL", PngWriter::u32(static_cast<std::uint32_t>(frames.size())) + PngWriter::u32(0));
  std::uint32_t n_parts = 0;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const PngParts parts = png_parts(frames[i]);
    if (parts.header != header)
      throw FormatError("animated PNG: a frame has another size or kind than the first");
    const std::string size(parts.header.substr(0, 8));
    const std::string place = PngWriter::u32(0) + PngWriter::u32(0);
    const std::string delay =
        PngWriter::u16(static_cast<std::uint32_t>(milliseconds)) + PngWriter::u16(1000);
    out.chunk("fcTL", PngWriter::u32(n_parts++) + size + place + delay + std::string(2, '\0'));
    if (i == 0) {
      out.chunk("IDAT", parts.pixels);
    } else {
      out.chunk("fdAT", PngWriter::u32(n_parts++) + parts.pixels);
    }
  }
  out.chunk("IEND", "");
  return out.take();
}

}  // namespace kvscope
