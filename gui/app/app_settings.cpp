// The App's settings: what is remembered of a window, and what holds for it alone.
#include <imgui.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "gui/app/app.hpp"
#include "gui/model/session/json_fields.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

void App::for_this_window(const std::function<void(Settings&)>& change) {
  const nlohmann::ordered_json before = fields_to_json(settings_);
  change(settings_);
  const nlohmann::ordered_json after = fields_to_json(settings_);
  for (const auto& [key, value] : after.items()) {
    if (value != before[key]) lent_[key] = {value, before[key]};
  }
}

void App::remember() {
  bool changed = false;
  const auto& documents = session_->documents();
  std::set<fs::path> now_open;
  const auto note = [&](const fs::path& file) {
    now_open.insert(file);
    if (known_.contains(file)) return;  // a recording gets another name at its end
    settings_.add_recent(file);
    changed = true;
  };
  for (const auto& document : documents) note(document->path());
  for (const auto& result : session_->results()) note(result->name());
  known_ = std::move(now_open);
  nlohmann::ordered_json now = fields_to_json(settings_);
  std::erase_if(lent_, [&](const auto& field) { return now[field.first] != field.second.here; });
  for (const auto& [key, lent] : lent_) now[key] = lent.kept;
  if (!changed && !unsaved_ && now == saved_) return;
  saved_ = now;
  unsaved_ = false;
  if (settings_file_.empty() || ImGui::IsAnyMouseDown()) {
    unsaved_ = !settings_file_.empty();
    return;
  }
  try {
    Settings kept = settings_;
    fields_from_json(now, kept);
    save_settings(kept, settings_file_);
  } catch (const Error& e) {
    session_->notify(e.what(), /*is_error=*/false);
    settings_file_.clear();  // said once
  }
}

}  // namespace kvscope::gui
