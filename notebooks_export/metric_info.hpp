// What a result's column means in a table: its title, which direction is better, how its numbers
// are written.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kvscope {

/// Which values of a metric are better; neither: not to be ranked (how many keys were kept, ...).
enum class Better { higher, lower, neither };

/// How a number is written in a table.
struct NumberFormat {
  int digits = 3;             // after the point
  bool percent = false;       // times 100
  bool percent_sign = false;  // and followed by %
  bool plus_sign = false;     // positive numbers carry a +
};

/// "0.123", "+29.9", "65%"; "-" for NaN, "inf" for infinities.
std::string format_number(double value, const NumberFormat& format);

struct MetricInfo {
  std::string title;
  Better better = Better::neither;
  NumberFormat format;
  std::string quantity;  // columns that say one thing in several forms are ranked once, by it
};

/// Known by its column's whole name: "accuracy", "mass_mean", "perplexity", "ttft_ratio", ... Every
/// column of numbers that a command writes is known. Nothing for a column of unknown meaning.
std::optional<MetricInfo> find_metric(std::string_view column);

}  // namespace kvscope
