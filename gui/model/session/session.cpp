#include "gui/model/session/session.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/whole_file.hpp"
#include "gui/model/session/methods.hpp"
#include "gui/model/traces/trace_part.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

/// What a file turned out to be.
struct Session::Opened {
  fs::path path;
  std::shared_ptr<const Document> trace;
  std::shared_ptr<const ResultView> result;
  std::optional<FileStamp> stamp;  // just before it was read
  std::string problem;             // a sentence: it is neither
};

/// A file that is being opened.
struct Session::Opening {
  fs::path path;
  fs::path replaces;  // takes the place of what is open of this file; empty: comes beside it
  Job job;
  std::shared_ptr<Opened> opened;  // null until it was read
  bool is_cancelled() const { return !opened && job.status().state == JobState::cancelled; }
};

namespace {

/// True for what only a result can be, by its name.
bool is_table(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".csv" || extension == ".json";
}

/// The name that a recording gets once it is whole; empty if this is none that grows.
fs::path final_name(const fs::path& path) {
  return path.extension() == ".part" ? fs::path(path).replace_extension() : fs::path();
}

template <class T>
T stepped(const std::vector<T>& values, T current, int by) {
  const auto at = std::ranges::find(values, current);
  if (at == values.end() || values.empty()) return current;
  const auto index = std::clamp<std::ptrdiff_t>((at - values.begin()) + by, 0,
                                                static_cast<std::ptrdiff_t>(values.size()) - 1);
  return values[static_cast<std::size_t>(index)];
}

/// The same prompt, as far as both have it: what was decoded may differ.
bool same_prompt(const Document& a, const Document& b) {
  const Index n = std::min(a.info().n_prompt, b.info().n_prompt);
  return n > 0 && n_common_tokens(a.source(), b.source()) >= n;
}

}  // namespace

// ---- files ----

fs::path Session::file_behind(const fs::path& path) {
  std::error_code error;
  const fs::path absolute = fs::weakly_canonical(path, error);
  const fs::path file = error ? path : absolute;
  const fs::path whole = final_name(file);
  const bool is_whole =
      !whole.empty() && !fs::exists(file, error) && fs::is_regular_file(whole, error);
  return is_whole ? whole : file;
}

void Session::open(const fs::path& path) {
  const fs::path file = file_behind(path);
  for (std::size_t i = 0; i < documents_.size(); ++i) {
    if (documents_[i]->path() != file) continue;
    select("open", [&](Selection& s) { s.trace = static_cast<Index>(i); });
    return;
  }
  // A recording that is open while it grows has just got its name.
  for (std::size_t i = 0; i < documents_.size(); ++i) {
    const Document& grown = *documents_[i];
    if (!grown.is_being_recorded() || final_name(grown.path()) != file || !grown.is_gone())
      continue;
    select("open", [&](Selection& s) { s.trace = static_cast<Index>(i); });
    load(file, grown.path());
    return;
  }
  for (const auto& opening : opening_) {
    if (opening->path == file && !opening->is_cancelled()) return;
  }
  load(file);
}

bool Session::is_opening() const {
  return std::ranges::any_of(opening_,
                             [](const auto& opening) { return !opening->is_cancelled(); });
}

void Session::load(const fs::path& path, const fs::path& replaces) {
  std::shared_ptr<const Document> before;
  for (const auto& open : documents_) {
    if (!replaces.empty() && open->path() == replaces) before = open;
  }
  const auto work = [path, before, open_result = open_result_,
                     &cache = bench_.cache](JobContext&) -> std::any {
    auto opened = std::make_shared<Opened>();
    opened->path = path;
    opened->stamp = file_stamp(path);
    std::string why_no_trace;
    std::error_code error;
    // Every failure becomes a value here, so that the session learns of it as of a success.
    try {
      if (!fs::exists(path, error))
        throw IoError("{}: no such file; it may have been moved since", path.string());
      if (fs::is_directory(path, error)) {
        throw IoError("{} is a folder; open a trace (.h5) or a result (.h5, .csv, .json) in it",
                      path.string());
      }
      check_regular_file(path);  // a session that names a device must not fill the memory
      if (!is_table(path)) {
        try {
          opened->trace = Document::open(path, cache, before.get());
          return opened;
        } catch (const Error& e) {
          why_no_trace = e.what();
        }
      }
      opened->result = open_result(path);
    } catch (const Error& e) {
      opened->problem = why_no_trace.empty() ? std::string(e.what()) : why_no_trace;
    } catch (const std::exception& e) {
      opened->problem = fmt::format("{} could not be opened: {}", path.string(), e.what());
    }
    return opened;
  };
  const auto opening = std::make_shared<Opening>();
  opening->path = path;
  opening->replaces = replaces;
  // The session owns what is being opened: a delivery that comes too late does nothing.
  const auto deliver = [this, weak = std::weak_ptr<Opening>(opening)](std::any value) {
    const auto arrived = weak.lock();
    if (!arrived) return;
    arrived->opened = std::any_cast<std::shared_ptr<Opened>>(std::move(value));
    take_opened();
  };
  opening_.push_back(opening);
  const std::string verb = replaces.empty() ? "Opening" : "Reading";
  opening->job = bench_.jobs.start(fmt::format("{} {}", verb, path.filename().string()),
                                   Lane::quick, work, deliver, /*urgent=*/true);
}

/// Takes what is there, as far as nothing that was asked for earlier is still to come.
void Session::take_opened() {
  while (!opening_.empty()) {
    const std::shared_ptr<Opening> next = opening_.front();
    if (!next->opened && !next->is_cancelled()) return;
    opening_.erase(opening_.begin());
    ++revision_;
    if (!next->opened) continue;
    if (!next->opened->problem.empty()) {
      // A recording may get its name while it is read: the next look finds it.
      if (next->replaces != next->path || final_name(next->path).empty())
        notify(next->opened->problem);
    } else if (!next->replaces.empty()) {
      exchange(*next->opened, next->replaces);
    } else {
      add(*next->opened);
    }
  }
  // What a session file wished for is not waited for any longer than its files.
  if (wanted_trace_.is_set()) wanted_.reset();
  wanted_trace_ = {};
  wanted_second_ = {};
  finds_second_ = true;
}

void Session::add(const Opened& opened) {
  if (opened.trace) {
    gone_.erase(opened.path);
    add_trace(opened.trace);
    return;
  }
  if (opened.stamp) result_stamps_[opened.path] = *opened.stamp;
  withdraw_offer(opened.path);
  const auto known = std::ranges::find(result_paths_, opened.path);
  if (known != result_paths_.end()) {
    results_[static_cast<std::size_t>(known - result_paths_.begin())] = opened.result;
  } else {
    results_.push_back(opened.result);
    result_paths_.push_back(opened.path);
  }
}

/// A file that was changed on disk, or a recording that grew; it may have been closed meanwhile.
void Session::exchange(const Opened& opened, const fs::path& replaces) {
  const auto place = std::ranges::find(documents_, replaces, &Document::path);
  if (place == documents_.end()) return;
  if (!opened.trace) {
    notify(fmt::format("{} was replaced by something that is no trace; what was open stays.",
                       opened.path.string()));
    return;
  }
  gone_.erase(replaces);
  withdraw_offer(replaces);
  const bool is_same = opened.path == replaces && (*place)->is_being_recorded() &&
                       opened.trace->is_being_recorded() &&
                       opened.trace->growing_key() == (*place)->growing_key() &&
                       opened.trace->info().n_tokens == (*place)->info().n_tokens;
  if (is_same) return;  // written to, but no call is whole since: nothing begins anew
  name_bookmarks(**place, *opened.trace);
  // Who looks at the newest query of a recording goes on looking at the newest one.
  const auto newest = [](const Document& trace) { return trace.info().rows.end - 1; };
  const bool follows = document() == *place && (*place)->is_being_recorded() &&
                       opened.trace->growing_key() == (*place)->growing_key() &&
                       state_.selection.query == newest(**place);
  *place = opened.trace;
  if (follows) state_.selection.query = newest(**place);
  clamp();
}

void Session::add_trace(std::shared_ptr<const Document> trace) {
  documents_.push_back(trace);
  const auto index = static_cast<Index>(documents_.size()) - 1;
  // Over the same prompt, the one that was opened later is the draft.
  if (index > 0 && !second_ && finds_second_) {
    const Document& first = *documents_[static_cast<std::size_t>(state_.selection.trace)];
    if (same_prompt(first, *trace)) second_ = index;
  }
  const bool is_wanted =
      wanted_ && (wanted_trace_.is_set() ? wanted_trace_.is_of(*trace) : index == 0);
  if (is_wanted) {
    state_ = *wanted_;
    state_.selection.trace = index;
    wanted_.reset();
  } else if (index == 0 && !wanted_) {
    // Look at the end of the prompt first: it sees everything.
    state_.selection.trace = 0;
    state_.selection.query = std::max<Index>(0, trace->info().n_prompt - 1);
  }
  if (wanted_second_.is_of(*trace)) second_ = index;
  clamp();
}

void Session::close_trace(Index trace) {
  if (trace < 0 || trace >= static_cast<Index>(documents_.size())) return;
  const fs::path path = documents_[static_cast<std::size_t>(trace)]->path();
  gone_.erase(path);
  withdraw_offer(path);
  documents_.erase(documents_.begin() + trace);
  const auto moved = [&](Index i) { return i > trace ? i - 1 : i; };
  if (second_ && *second_ == trace) second_.reset();
  if (second_) second_ = moved(*second_);
  if (state_.selection.trace == trace) {
    state_.selection.trace = 0;
  } else {
    state_.selection.trace = moved(state_.selection.trace);
  }
  if (second_ == state_.selection.trace) second_.reset();
  history_ = {};  // its steps name traces by their place
  clamp();
}

void Session::close_result(Index result) {
  if (result < 0 || result >= static_cast<Index>(results_.size())) return;
  const auto path = result_paths_.begin() + result;
  result_stamps_.erase(*path);
  withdraw_offer(*path);
  results_.erase(results_.begin() + result);
  result_paths_.erase(path);
  ++revision_;
}

void Session::watch_files() {
  take_opened();
  if (is_opening()) return;
  const auto documents = documents_;  // reading on adds to what is being opened, not to these
  for (const auto& open : documents) {
    const Document& document = *open;
    if (!document.has_changed()) {
      gone_.erase(document.path());
    } else if (document.is_being_recorded()) {
      follow(document);
    } else if (const auto stamp = file_stamp(document.path())) {
      offer_reload(document.path(), *stamp);
    } else {
      say_gone(document.path());
    }
  }
  for (const auto& [path, read] : result_stamps_) {
    const auto stamp = file_stamp(path);
    if (stamp && *stamp != read) offer_reload(path, *stamp);
  }
}

/// A recording that is written to, or that has got its name.
void Session::follow(const Document& document) {
  // What is computed at present is not begun anew for some more rows.
  if (bench_.jobs.is_computing()) return;
  fs::path file = document.path();
  auto stamp = file_stamp(file);
  if (!stamp) {
    file = final_name(file);
    if (!file.empty()) stamp = file_stamp(file);
  }
  if (!stamp) {
    say_gone(document.path());
    return;
  }
  if (is_new_state(file, *stamp)) load(file, document.path());
}

/// True once for every state of a file.
bool Session::is_new_state(const fs::path& path, const FileStamp& now) {
  const auto [last, is_new] = tried_.try_emplace(path, now);
  if (!is_new && last->second == now) return false;
  last->second = now;
  return true;
}

void Session::offer_reload(const fs::path& path, const FileStamp& now) {
  if (!is_new_state(path, now)) return;
  withdraw_offer(path);
  gone_.erase(path);
  notices_.push_back({fmt::format("{} has changed on disk since it was opened.", path.string()),
                      /*is_error=*/false, path});
  ++revision_;
}

void Session::withdraw_offer(const fs::path& path) {
  if (std::erase_if(notices_, [&](const Notice& notice) { return notice.reload == path; }) > 0)
    ++revision_;
}

void Session::say_gone(const fs::path& path) {
  if (!gone_.insert(path).second) return;
  notify(
      fmt::format("{} was deleted or moved. What is open stays readable; copy what you need "
                  "before you close it.",
                  path.string()));
}

void Session::reload(fs::path path) {
  withdraw_offer(path);
  const bool is_trace =
      std::ranges::any_of(documents_, [&](const auto& open) { return open->path() == path; });
  load(path, is_trace ? path : fs::path());
}

std::shared_ptr<const Document> Session::document() const {
  const auto i = static_cast<std::size_t>(state_.selection.trace);
  return i < documents_.size() ? documents_[i] : nullptr;
}

std::shared_ptr<const Document> Session::second() const {
  if (!second_ || *second_ == state_.selection.trace) return nullptr;
  const auto i = static_cast<std::size_t>(*second_);
  return i < documents_.size() ? documents_[i] : nullptr;
}

std::shared_ptr<const Document> Session::draft_for(const MethodSpec& method) const {
  return method.caps().needs_draft ? second() : nullptr;
}

void Session::set_second(std::optional<Index> trace) {
  if (trace && (*trace < 0 || *trace >= static_cast<Index>(documents_.size()))) trace.reset();
  second_ = trace;
  ++revision_;
}

// ---- selection ----

void Session::clamp() {
  const auto last = static_cast<Index>(documents_.size()) - 1;
  state_.selection.trace = std::clamp<Index>(state_.selection.trace, 0, std::max<Index>(0, last));
  if (const auto open = document()) {
    state_.selection = clamped(state_.selection, open->info());
  }
  ++revision_;
}

void Session::change(std::string_view origin, const std::function<void(Snapshot&)>& change) {
  const Snapshot before = state_;
  change(state_);
  clamp();
  if (state_ == before) return;
  history_.note(before, origin, History::Clock::now());
}

void Session::select(std::string_view origin, const std::function<void(Selection&)>& change_it) {
  change(origin, [&](Snapshot& state) { change_it(state.selection); });
}
void Session::select_head(std::string_view origin, Index layer, Index q_head) {
  select(origin, [&](Selection& s) { s.layer = layer, s.q_head = q_head; });
}
void Session::select_pair(std::string_view origin, Index query, std::optional<Index> key) {
  select(origin, [&](Selection& s) { s.query = query, s.key = key; });
}

void Session::set_parameters(std::string_view origin,
                             const std::function<void(Parameters&)>& change_it) {
  change(origin, [&](Snapshot& state) {
    change_it(state.parameters);
    keep_within(state.parameters, document().get());
  });
}

void Session::keep_within(Parameters& parameters, const Document* open) {
  visit_fields(parameters, [&](const Field& any, auto& value) {
    using T = std::remove_cvref_t<decltype(value)>;
    const Field field = open ? within(any, open->info()) : any;
    if constexpr (std::is_arithmetic_v<T>)
      value = static_cast<T>(std::clamp(static_cast<double>(value), field.min, field.max));
  });
}

void Session::undo() {
  if (!history_.can_undo()) return;
  state_ = history_.undo(state_);
  clamp();
}

void Session::redo() {
  if (!history_.can_redo()) return;
  state_ = history_.redo(state_);
  clamp();
}

void Session::step_layer(int by) {
  if (const auto open = document()) {
    select("layer keys",
           [&](Selection& s) { s.layer = stepped(open->info().layers, s.layer, by); });
  }
}

void Session::step_head(int by) {
  if (const auto open = document()) {
    select("head keys",
           [&](Selection& s) { s.q_head = stepped(open->info().q_heads, s.q_head, by); });
  }
}

void Session::step_query(Index by) {
  select("query keys", [&](Selection& s) { s.query = std::max<Index>(0, s.query + by); });
}

bool Brush::has(Index pos) const {
  return std::ranges::binary_search(queries, pos) || std::ranges::binary_search(keys, pos);
}

std::string Brush::words() const {
  if (empty()) return "no lasso (Alt and drag)";
  return fmt::format("lasso: {} quer{}, {} key{}", queries.size(),
                     queries.size() == 1 ? "y" : "ies", keys.size(), keys.size() == 1 ? "" : "s");
}

const Brush& Session::brush() const {
  static const Brush kNone;
  const auto trace = document();
  return trace && trace->growing_key() == brush_of_ ? brush_ : kNone;
}

void Session::set_brush(Brush brush) {
  for (std::vector<Index>* positions : {&brush.queries, &brush.keys}) {
    std::ranges::sort(*positions);
    positions->erase(std::unique(positions->begin(), positions->end()), positions->end());
  }
  brush_ = std::move(brush);
  brush_of_ = document() ? document()->growing_key() : std::string();
}

bool Session::is_ticked(const std::string& selector) const {
  return std::ranges::find(ticked_, selector) != ticked_.end();
}

void Session::set_ticked(const std::string& selector, bool on) {
  if (on == is_ticked(selector)) return;
  if (on) {
    ticked_.push_back(selector);
  } else {
    std::erase(ticked_, selector);
  }
  ++revision_;
}

Index Session::kv_head() const {
  const auto open = document();
  return open ? state_.selection.q_head / open->info().group(state_.selection.layer) : 0;
}

Phase Session::phase() const {
  const auto open = document();
  return open ? phase_of(open->info(), state_.selection.query) : Phase::prefill;
}

TokenRange Session::call() const {
  const Index query = state_.selection.query;
  const auto open = document();
  if (!open || phase() != Phase::prefill) return {query, query + 1};
  const Index chunk = state_.parameters.chunk;
  const Index begin = query / chunk * chunk;
  return {begin, std::min(begin + chunk, open->info().n_prompt)};
}

// ---- the rest ----

void Session::notify(std::string sentence, bool is_error) {
  for (const Notice& notice : notices_) {
    if (notice.sentence == sentence) return;
  }
  notices_.push_back({std::move(sentence), is_error, {}});
  ++revision_;
}

void Session::dismiss(std::size_t notice) {
  if (notice >= notices_.size()) return;
  notices_.erase(notices_.begin() + static_cast<std::ptrdiff_t>(notice));
  ++revision_;
}

void Session::dismiss_all() {
  notices_.clear();
  ++revision_;
}

}  // namespace kvscope::gui
