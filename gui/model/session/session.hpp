// What is open and what is selected: the one state that all panels share. Used from one thread.
//
// Panels read it in every frame and change it through select() and set_parameters(), which keep
// indices inside the trace and remember the way back. Files are opened in the background.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/figures/result_view.hpp"
#include "core/selectors/selector.hpp"
#include "gui/model/jobs/async_value.hpp"
#include "gui/model/session/bookmarks.hpp"
#include "gui/model/session/selection.hpp"
#include "gui/model/traces/document.hpp"

namespace kvscope::gui {

/// Something the user must know, until they dismiss it.
struct Notice {
  std::string sentence;
  bool is_error = false;
  std::filesystem::path reload;  // a file that it offers to read again; empty: none
};

/// Positions that a lasso went around, ascending, each once.
struct Brush {
  std::vector<Index> queries{};
  std::vector<Index> keys{};
  bool empty() const { return queries.empty() && keys.empty(); }
  bool has(Index pos) const;
  /// "lasso: 12 queries, 30 keys".
  std::string words() const;
};

class Session {
 public:
  using ResultOpener =
      std::function<std::unique_ptr<ResultView>(const std::filesystem::path& file)>;
  /// `open_result` reads files that are no traces; it runs on worker threads.
  Session(Workbench bench, ResultOpener open_result)
      : bench_(bench), open_result_(std::move(open_result)) {}

  // ---- files ----
  /// Opens a trace or a result in the background; what it is, is decided by its contents. Files
  /// appear in the order of these calls. One that is open already is shown again. Problems become
  /// notices.
  void open(const std::filesystem::path& path);
  void close_trace(Index trace);
  void close_result(Index result);
  /// Looks after the files that are open. A recording that grows is read on, also once it has
  /// got its name (.part is gone), whenever nothing is computed that would begin anew; what is
  /// whole and has changed is offered to be read again; what is gone is said. Cheap; call about
  /// once a second.
  void watch_files();
  /// Reads a file that is open again: the selection stays as far as it goes.
  void reload(std::filesystem::path path);  // a copy: the offer that names it goes
  /// Files that were asked for are not there yet.
  bool is_opening() const;

  const std::vector<std::shared_ptr<const Document>>& documents() const { return documents_; }
  const std::vector<std::shared_ptr<const ResultView>>& results() const { return results_; }
  /// The selected trace; null if none is open.
  std::shared_ptr<const Document> document() const;
  /// The trace it is compared with: the draft of layer maps and SpecAttn. Null if there is none.
  std::shared_ptr<const Document> second() const;
  /// What the method is given beside the selected trace: second() if it needs a draft, else null.
  std::shared_ptr<const Document> draft_for(const MethodSpec& method) const;
  std::optional<Index> second_index() const { return second_; }
  void set_second(std::optional<Index> trace);

  // ---- selection ----
  const Selection& selection() const { return state_.selection; }
  const Parameters& parameters() const { return state_.parameters; }
  /// `origin` names the gesture ("layer keys", "budget slider"): quick changes of one origin are
  /// one step of undo. Indices are clamped to what was recorded.
  void select(std::string_view origin, const std::function<void(Selection&)>& change);
  void select_head(std::string_view origin, Index layer, Index q_head);
  void select_pair(std::string_view origin, Index query, std::optional<Index> key);
  void set_parameters(std::string_view origin, const std::function<void(Parameters&)>& change);
  bool can_undo() const { return history_.can_undo(); }
  bool can_redo() const { return history_.can_redo(); }
  void undo();
  void redo();
  /// To the next or previous recorded layer, head; by that many positions.
  void step_layer(int by);
  void step_head(int by);
  void step_query(Index by);
  /// Methods drawn beside each other in curves.
  const std::vector<std::string>& ticked() const { return ticked_; }
  void set_ticked(const std::string& selector, bool on);
  bool is_ticked(const std::string& selector) const;

  /// What a lasso went around in a panel of the selected trace; nothing of another one.
  const Brush& brush() const;
  void set_brush(Brush brush);

  // ---- bookmarks ----
  const std::vector<Bookmark>& bookmarks() const { return bookmarks_; }
  /// Of what is selected now; nothing without a trace.
  void add_bookmark(std::string note);
  void set_note(std::size_t bookmark, std::string note);
  void remove_bookmark(std::size_t bookmark);
  /// Selects it again; a notice if its trace is not open.
  void go_to(std::size_t bookmark);
  /// Goes to the next or previous one, from the one that was gone to last: they are played.
  void step_bookmark(int by);
  /// Where bookmarks of the selected trace lie in its selected head, in their order.
  std::vector<Bookmark> bookmarks_here() const;

  /// KV head that the selected query head reads.
  Index kv_head() const;
  Phase phase() const;
  /// The call in which the selected query is asked about: its prefill chunk, or its decode step.
  TokenRange call() const;

  // ---- the rest ----
  const std::vector<Notice>& notices() const { return notices_; }
  void notify(std::string sentence, bool is_error = true);
  void dismiss(std::size_t notice);
  void dismiss_all();
  Workbench bench() const { return bench_; }
  /// Grows with every change of what is open or selected.
  std::uint64_t revision() const { return revision_; }

  /// Everything but the panels' own options: files by uuid and path, selection, sliders. Relative
  /// paths are relative to `base`.
  nlohmann::ordered_json to_json(const std::filesystem::path& base) const;
  /// Opens the files that are named, unless traces are open already: then the rest is applied to
  /// them. Throws ConfigError for what is no session.
  void apply(const nlohmann::ordered_json& json, const std::filesystem::path& base);

 private:
  struct Opened;
  struct Opening;
  /// The file that is meant: a recording that a session or a list names while it grew may have got
  /// its final name since.
  static std::filesystem::path file_behind(const std::filesystem::path& path);
  void change(std::string_view origin, const std::function<void(Snapshot&)>& change);
  void load(const std::filesystem::path& path, const std::filesystem::path& replaces = {});
  void follow(const Document& document);
  void offer_reload(const std::filesystem::path& path, const FileStamp& now);
  void withdraw_offer(const std::filesystem::path& path);
  void say_gone(const std::filesystem::path& path);
  bool is_new_state(const std::filesystem::path& path, const FileStamp& now);
  void take_opened();
  void add(const Opened& opened);
  void exchange(const Opened& opened, const std::filesystem::path& replaces);
  void add_trace(std::shared_ptr<const Document> trace);
  /// Bookmarks of a recording follow it to its uuid and name.
  void name_bookmarks(const Document& before, const Document& now);
  /// As far as the trace goes; null: none is open.
  static void keep_within(Parameters& parameters, const Document* open);
  void clamp();

  Workbench bench_;
  ResultOpener open_result_;
  std::vector<std::shared_ptr<const Document>> documents_;
  std::vector<std::shared_ptr<const ResultView>> results_;
  std::vector<std::filesystem::path> result_paths_;
  std::map<std::filesystem::path, FileStamp> result_stamps_;  // as they were read
  std::optional<Index> second_;
  Snapshot state_;
  std::optional<Snapshot> wanted_;  // by a session file, until its trace is open
  /// What a session file says of a trace: a recording that grows has no uuid yet.
  struct Named {
    std::string uuid;
    std::filesystem::path path;  // as open() takes it
    bool is_set() const { return !uuid.empty() || !path.empty(); }
    bool is_of(const Document& trace) const {
      return uuid.empty() ? !path.empty() && trace.path() == path : trace.info().uuid == uuid;
    }
  };
  Named wanted_trace_;
  Named wanted_second_;
  History history_;
  std::vector<std::string> ticked_ = {"oracle-topk", "quoka", "quest", "streamingllm"};
  Brush brush_;
  std::string brush_of_;  // the trace's key
  std::vector<Bookmark> bookmarks_;
  std::optional<std::size_t> played_;  // the bookmark that was gone to last
  std::vector<Notice> notices_;
  std::set<std::filesystem::path> gone_;
  /// Changed files that were read again, or offered to be: as they were then, so that each state is
  /// tried once.
  std::map<std::filesystem::path, FileStamp> tried_;
  std::vector<std::shared_ptr<Opening>> opening_;  // in the order in which they were asked for
  bool finds_second_ = true;  // a second trace over the same tokens becomes the second one
  std::uint64_t revision_ = 0;
};

}  // namespace kvscope::gui
