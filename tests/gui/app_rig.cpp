#include "tests/gui/app_rig.hpp"
#include "support/places.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "core/base/data_dir.hpp"
#include "support/fixture.hpp"
#include "traces/reader.hpp"
#include "traces/recorder.hpp"
#include "traces/writer.hpp"

namespace kvscope::gui::test {

namespace fs = std::filesystem;

namespace {

void record(bool draft, Index n_tokens, Index n_decode, const fs::path& out) {
  const fs::path model_dir = draft ? embedded_draft() : embedded_verifier();
  const Transformer model = Transformer::load(model_dir);
  const Tokenizer tokenizer = Tokenizer::load(model_dir);
  std::vector<TokenId> ids;
  if (draft) {
    // On what the verifier read and wrote, as the layer map needs it.
    const TraceFile verifier = TraceFile::open(embedded_trace(/*draft=*/false, n_tokens, n_decode));
    ids.assign(verifier.tokens().begin(), verifier.tokens().end());
    n_decode = 0;
  } else {
    // A page of the book is enough; the whole of it would take a second to cut.
    ids = tokenizer.encode(testing::read_file(embedded_text()).substr(0, 40000));
    ids.resize(static_cast<std::size_t>(n_tokens));
  }
  ThreadPool pool(2);
  RecordOptions options{
      .chunk = 64, .n_decode = n_decode, .origin = {.model_name = draft ? "draft" : "verifier"}};
  auto receiver = create_trace(out, {});
  record_trace(model, &tokenizer, ids, options, *receiver, pool, {});
}

}  // namespace

fs::path embedded_trace(bool draft, Index n_tokens, Index n_decode) {
  const auto name = fmt::format("{}-{}/{}.h5", n_tokens, n_decode, draft ? "draft" : "verifier");
  return testing::fixture_file(
      name, [&](const fs::path& file) { record(draft, n_tokens, n_decode, file); });
}

Rig::Rig(ImVec2 size, AppOptions options) : backend_(size) {
  options.n_threads = 2;
  if (options.program == AppOptions().program) options.program = testing::kvscope_program();
  app_ = std::make_unique<App>(std::move(options), backend_.fonts(), backend_.texture_store());
}

void Rig::frame(int n) {
  for (int i = 0; i < n; ++i) backend_.frame([&] { app_->frame(1.0f); });
}

void Rig::settle(std::chrono::seconds limit) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + limit;
  for (int calm = 0; calm < 3;) {
    frame();
    if (app_->is_busy()) {
      calm = 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    } else {
      ++calm;
    }
    REQUIRE(Clock::now() < end);
  }
}

void Rig::open(const fs::path& file) {
  app_->open(file);
  settle();
}

void Rig::open_pair(bool with_draft) {
  open(embedded_trace(/*draft=*/false));
  if (with_draft) open(embedded_trace(/*draft=*/true));
}

void Rig::tap(int key, bool ctrl, bool shift) {
  ImGuiIO& io = backend_.io();
  io.KeyCtrl = ctrl;
  io.KeyShift = shift;
  io.KeysDown[key] = true;
  frame();
  io.KeysDown[key] = false;
  frame();
  io.KeyCtrl = io.KeyShift = false;
  frame();
}

void Rig::click(ImVec2 at, int button) {
  backend_.click(
      at, [&] { app_->frame(1.0f); }, button);
  frame();
}

void Rig::hover(ImVec2 at) {
  backend_.move_mouse(at);
  frame(2);
}

std::optional<ImVec2> Rig::find_mark(const std::string& name, const std::string& panel) {
  if (!panel.empty()) {
    for (const auto& [found, at] : app_->panel(panel).landmarks()) {
      if (found == name) return at;
    }
  }
  const auto marks = app_->state()["landmarks"];
  if (!marks.contains(name)) return std::nullopt;
  return ImVec2{marks[name][0].get<float>(), marks[name][1].get<float>()};
}

ImVec2 Rig::mark(const std::string& name, const std::string& panel) {
  const auto at = find_mark(name, panel);
  INFO(name);
  REQUIRE(at);
  return *at;
}

Area Rig::area(const std::string& panel) {
  const auto area = app_->area_of(panel);
  INFO("panel " << panel << " is not shown");
  REQUIRE(area.has_value());
  return *area;
}

void Rig::click_panel(const std::string& panel, float x, float y) {
  const Area at = area(panel);
  click(at.x + x * at.w, at.y + y * at.h);
}

ImVec2 Rig::place(const std::string& panel, double x, double y, std::size_t figure_panel) {
  const auto at = app_->panel(panel).place(figure_panel, x, y);
  INFO("panel " << panel << " does not say where (" << x << ", " << y << ") is");
  REQUIRE(at.has_value());
  return *at;
}

void Rig::hover_panel(const std::string& panel, float x, float y) {
  const Area at = area(panel);
  hover({at.x + x * at.w, at.y + y * at.h});
}

}  // namespace kvscope::gui::test
