// A saved session as a page: a step for each bookmark, a figure for each result.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/base/analysis.hpp"
#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/whole_file.hpp"
#include "notebooks_export/html_page.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostSessionBytes = std::size_t{16} << 20;
constexpr std::size_t kMostBookmarks = 100;  // so that a page stays one that people can read
constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
constexpr Index kUsualBudget = 256;  // of bookmarks that name none

/// The index of `item`, which is added if no item is the `same`.
template <class Item, class Same>
std::size_t index_of(std::vector<Item>& items, Item item, Same&& same) {
  const auto at = std::ranges::find_if(items, same);
  const auto index = static_cast<std::size_t>(at - items.begin());
  if (at == items.end()) items.push_back(std::move(item));
  return index;
}

class SessionReader {
 public:
  SessionReader(const nlohmann::json& session, const fs::path& file, const TraceOpener& open)
      : session_(session, file.string()), open_(open) {
    std::error_code error;
    folder_ = fs::absolute(file, error).parent_path();
    if (session_.find("parameters") != nullptr) sliders_ = session_.object("parameters");
  }

  PageContent read(const fs::path& file) {
    content_.title = fmt::format("Bookmarks of {}", file.stem().string());
    if (sliders_) {
      content_.replay.chunk = sliders_->integer_or("chunk", 1, kMost, content_.replay.chunk);
      content_.replay.dense_layers = sliders_->integer_or("dense_layers", 0, kMost, 0);
    }
    each("bookmarks", [&](const nlohmann::json& one, const std::string& place) {
      add_step(JsonObject(one, session_.where(), place + "."));
    });
    each("results", [&](const nlohmann::json& one, const std::string& place) {
      if (!one.is_string()) session_.refuse(place, "the name of a file");
      content_.results.push_back(folder_ / one.get<std::string>());
    });
    if (content_.steps.empty() && content_.results.empty()) {
      throw FormatError(
          "{}: the session has neither bookmarks nor results, of which a page is made: in the "
          "window, select a query and a key, press Ctrl+B, and save the session again",
          session_.where());
    }
    return std::move(content_);
  }

 private:
  template <class Visit>
  void each(const std::string& field, Visit&& visit) {
    if (session_.find(field) == nullptr) return;
    const nlohmann::json& list = session_.list(field);
    if (list.size() > kMostBookmarks)
      session_.refuse(field, fmt::format("at most {} entries", kMostBookmarks));
    for (std::size_t i = 0; i < list.size(); ++i) visit(list[i], fmt::format("{}[{}]", field, i));
  }

  void add_step(const JsonObject& mark) {
    PageHead head;
    head.trace = trace_of(mark);
    const TraceInfo& info = content_.traces[head.trace].source->info();
    head.layer = one_of(mark, "layer", info.layers);
    head.q_head = one_of(mark, "q_head", info.q_heads);
    PageStep step;
    step.query = mark.integer("query", 0, info.n_tokens - 1);
    if (mark.find("key") != nullptr) step.key = mark.integer("key", 0, info.n_tokens - 1);
    step.head = index_of(content_.heads, head, [&](const PageHead& other) {
      return other.trace == head.trace && other.layer == head.layer && other.q_head == head.q_head;
    });
    if (const auto method = method_of(mark)) {
      auto& methods = content_.heads[step.head].methods;
      step.method = index_of(methods, *method, [&](const PageMethod& other) {
        return other.words() == method->words();
      });
      if (methods.size() > kMostPageMethods) {
        mark.refuse("selector", fmt::format("at most {} methods in the bookmarks of one head",
                                            kMostPageMethods));
      }
    }
    step.note = fmt::format("Layer {}, head {}, query {}{}.", head.layer, head.q_head, step.query,
                            step.key ? fmt::format(", key {}", *step.key) : std::string());
    step.title = mark.string_if("note").value_or("");
    if (step.title.empty()) std::swap(step.title, step.note);
    content_.steps.push_back(std::move(step));
  }

  /// The place among the page's traces of the one that a bookmark names, by its uuid or, of a
  /// recording that had none yet, by the name of its file.
  std::size_t trace_of(const JsonObject& mark) {
    const std::string uuid = mark.string_if("trace").value_or("");
    const std::string name = mark.string_if("name").value_or("");
    for (const nlohmann::json& one : session_.list("traces")) {
      const JsonObject trace(one, session_.where(), "traces.");
      const fs::path path = trace.string_if("path").value_or("");
      const bool is_it =
          uuid.empty() ? path.filename() == name : trace.string_if("uuid").value_or("") == uuid;
      if (!is_it || path.empty()) continue;
      for (std::size_t i = 0; i < content_.traces.size(); ++i) {
        if (content_.traces[i].path == folder_ / path) return i;
      }
      content_.traces.push_back({folder_ / path, open_(folder_ / path)});
      require_full_qkv(*content_.traces.back().source, "export");
      return content_.traces.size() - 1;
    }
    throw FormatError(
        "{}: the bookmark is of {}, which is not among the session's traces: open it in the window "
        "and save the session again, or remove the bookmark",
        mark.name_of("trace"), quote(name.empty() ? uuid : name));
  }

  static Index one_of(const JsonObject& mark, const char* field, const std::vector<Index>& there) {
    const Index number = mark.integer(field, 0, kMost);
    if (std::ranges::find(there, number) == there.end())
      mark.refuse(field, fmt::format("one that its trace holds, {}", fmt::join(there, ", ")));
    return number;
  }

  /// The bookmark's method with the sliders of the session, as the window runs it; empty if the
  /// bookmark names none.
  std::optional<PageMethod> method_of(const JsonObject& mark) const {
    const std::string text = mark.string_if("selector").value_or("");
    if (text.empty()) return std::nullopt;
    PageMethod out;
    try {
      out.method = MethodSpec(text);
      for (const auto& [option, field] :
           {std::pair("n-queries", "n_queries"), std::pair("page-size", "page_size")}) {
        if (out.method.is_plain() && sliders_ && sliders_->find(field) != nullptr)
          out.method.fill(option, sliders_->integer(field, 1, kMost));
      }
    } catch (const ConfigError& e) {
      throw FormatError("{}: {}", mark.name_of("selector"), e.what());
    }
    const auto& budgets = out.method.caps().budgets;
    if (std::ranges::find(budgets, Budget::Kind::tokens) != budgets.end()) {
      const Index budget = mark.integer_or("budget", 0, kMost, 0);
      out.budget = {Budget::Kind::tokens, static_cast<double>(budget > 0 ? budget : kUsualBudget)};
    } else if (std::ranges::find(budgets, Budget::Kind::mass) != budgets.end()) {
      out.budget = {Budget::Kind::mass,
                    sliders_ ? sliders_->number_or("nucleus", 0.01, 1.0, 0.95) : 0.95};
    }
    return out;
  }

  JsonObject session_;
  const TraceOpener& open_;
  fs::path folder_;
  std::optional<JsonObject> sliders_;
  PageContent content_;
};

}  // namespace

PageContent page_of_session(const fs::path& file, const TraceOpener& open) {
  nlohmann::json json = parse_json(read_whole_file(file, kMostSessionBytes), file.string());
  // a view that the window exported holds its session
  if (json.is_object() && json.contains("format") && json.contains("session"))
    json = nlohmann::json(json["session"]);
  if (JsonObject(json, file.string()).string_if("kind").value_or("") != "kvscope-session") {
    throw FormatError(
        "{}: expected a session that kvscope-explorer saved (\"kind\": \"kvscope-session\"), found "
        "none: open the trace in the window, bookmark with Ctrl+B, save with Ctrl+S",
        file.string());
  }
  return SessionReader(json, file, open).read(file);
}

}  // namespace kvscope
