// What is shown before anything is open: samples to try, a recording to make, files to open.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/model/model_stores.hpp"
#include "gui/model/runs/command_form.hpp"
#include "gui/model/session/settings.hpp"
#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// What was chosen on the page.
struct StartChoice {
  bool shows_samples = false;           // what is to be opened are the samples, with the tour
  std::optional<CommandValues> record;  // show the form of kvscope record, with these filled in
};

/// What somebody saw on the disk: looked up again after a second, or at once if another question is
/// asked. Frames are drawn more often.
template <class T>
class DiskLook {
 public:
  template <class Look>
  const T& of(const std::string& question, Look look) {
    const auto now = std::chrono::steady_clock::now();
    if (!seen_ || question != question_ || now - at_ > std::chrono::seconds(1)) {
      seen_ = look();
      question_ = question;
      at_ = now;
    }
    return *seen_;
  }

 private:
  std::optional<T> seen_;
  std::string question_;
  std::chrono::steady_clock::time_point at_;
};

class StartPage {
 public:
  StartChoice draw(PanelContext& context, const Settings& settings);

 private:
  void draw_samples(PanelContext& context, StartChoice& choice);
  void draw_recording(const PanelContext& context, StartChoice& choice);
  void draw_files(PanelContext& context, const Settings& settings);
  struct RecentFile {
    std::filesystem::path file;
    bool is_there = false;
  };
  /// A recent file and its folder; true if it was clicked.
  bool draw_recent(const PanelContext& context, const RecentFile& entry);

  DiskLook<bool> has_samples_;
  DiskLook<std::vector<std::filesystem::path>> demo_;
  DiskLook<std::vector<RecentFile>> recent_;
  struct FoundModels {
    std::vector<StoredModel> models;
    std::size_t bytes() const { return sizeof *this + models.size() * sizeof(StoredModel); }
  };
  AsyncValue<FoundModels> models_;
  std::uint64_t sample_run_ = 0;  // the last of the recordings that make the samples
};

}  // namespace kvscope::gui
