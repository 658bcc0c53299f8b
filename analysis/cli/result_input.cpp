#include "analysis/cli/result_input.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "analysis/cli/read_input.hpp"
#include "core/base/error.hpp"
#include "traces/hash.hpp"
#include "traces/result_file.hpp"

namespace kvscope::cli {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxTextBytes = std::size_t{4} << 30;

class FileView final : public ResultView {
 public:
  FileView(ResultFile file, std::string name) : file_(std::move(file)), name_(std::move(name)) {}
  std::string name() const override { return name_; }
  const ResultInfo& info() const override { return file_.info(); }
  const Json& summary() const override { return file_.summary(); }
  const std::vector<ResultArray>& arrays() const override { return file_.arrays(); }

  std::vector<double> read(std::string_view array) const override {
    switch (require(array).type) {
      case ResultType::f32:
        return as_doubles<float>(array);
      case ResultType::f64:
        return file_.read<double>(array);
      case ResultType::i32:
        return as_doubles<std::int32_t>(array);
      case ResultType::i64:
        return as_doubles<std::int64_t>(array);
      case ResultType::u8:
        break;
    }
    return as_doubles<std::uint8_t>(array);
  }

 private:
  template <class T>
  std::vector<double> as_doubles(std::string_view array) const {
    const std::vector<T> values = file_.read<T>(array);
    return {values.begin(), values.end()};
  }
  ResultFile file_;
  std::string name_;
};

/// A result that owns what it shows.
class OwnedView final : public ResultView {
 public:
  OwnedView(std::unique_ptr<MemoryResult> result, std::string name)
      : result_(std::move(result)), view_(*result_, std::move(name)) {}
  std::string name() const override { return view_.name(); }
  const ResultInfo& info() const override { return view_.info(); }
  const Json& summary() const override { return view_.summary(); }
  const std::vector<ResultArray>& arrays() const override { return view_.arrays(); }
  std::vector<double> read(std::string_view array) const override { return view_.read(array); }

 private:
  std::unique_ptr<MemoryResult> result_;
  MemoryResultView view_;
};

std::unique_ptr<ResultView> view_of(const Table& table, ResultInfo info) {
  if (table.n_rows() == 0)
    throw FormatError(fmt::format("{}: the table has no rows", table.name()));
  if (info.config_hash.empty() && table.has_text("config_hash")) {
    info.config_hash = table.text("config_hash").at(0);
  }
  auto result = std::make_unique<MemoryResult>();
  table_to_result(table, info, *result);
  return std::make_unique<OwnedView>(std::move(result), table.name());
}

std::unique_ptr<ResultView> open_json(const std::string& text, const std::string& where) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw FormatError(fmt::format("{}: not valid JSON", where));
  if (!json.is_object() || !json.contains("rows")) {
    throw FormatError(
        fmt::format("{}: expected a report with \"rows\", as kvscope sweep --out {} writes it",
                    where, "x.json"));
  }
  ResultInfo info;
  const auto text_of = [&](const char* key) {
    return json.contains(key) && json[key].is_string() ? json[key].get<std::string>()
                                                       : std::string();
  };
  info.kind = text_of("kind").empty() ? "table" : text_of("kind");
  info.config_hash = text_of("config_hash");
  return view_of(table_from_json(json["rows"], where), info);
}

}  // namespace

std::unique_ptr<ResultView> open_result(const fs::path& file) {
  const std::string name = file.string();
  std::error_code error;
  if (fs::is_directory(file, error))
    throw IoError(fmt::format("{} is a folder, expected a file", name));
  if (!fs::exists(file, error)) throw IoError(fmt::format("cannot read {}: no such file", name));
  const std::string extension = file.extension().string();
  if (extension == ".csv") {
    ResultInfo info;
    info.kind = "table";
    return view_of(table_from_csv(read_whole_file(file, kMaxTextBytes), name), info);
  }
  if (extension == ".json") return open_json(read_whole_file(file, kMaxTextBytes), name);
  return std::make_unique<FileView>(ResultFile::open(file), name);
}

std::string hash_file(const fs::path& file) {
  return fmt::format("xxh128:{}", hash_text(read_whole_file(file, kMaxTextBytes)));
}

}  // namespace kvscope::cli
