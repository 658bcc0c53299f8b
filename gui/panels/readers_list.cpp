#include "gui/panels/readers_list.hpp"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "analysis/base/analysis.hpp"
#include "core/base/number_text.hpp"
#include "gui/model/map/attention_head.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace {
constexpr std::size_t kMostLines = 64;
constexpr std::size_t kMostText = 40;  // bytes of the word

/// Attention of the recorded queries after the word on its tokens together. Nothing is read by the
/// last token. Throws what AttentionHead::load throws. The same for any number of threads.
WordReaders word_readers(const TraceSource& trace, TokenRange word, JobContext& job) {
  constexpr Index kBlock = 256;  // queries between two looks at the stop
  const TraceInfo& info = trace.info();
  WordReaders readers{word, {}};
  const TokenRange queries{std::max(word.end, info.rows.begin), info.rows.end};
  std::vector<double> weights(static_cast<std::size_t>(std::max<Index>(0, queries.size())));
  Index n_done = 0;
  const auto n_heads = static_cast<Index>(info.layers.size() * info.q_heads.size());
  for (const Index layer : info.layers) {
    for (const Index q_head : info.q_heads) {
      const auto head = AttentionHead::load(trace, layer, q_head, job.stop);
      std::ranges::fill(weights, 0.0);
      const Index n_blocks = (static_cast<Index>(weights.size()) + kBlock - 1) / kBlock;
      job.pool.parallel_for(n_blocks, [&](Index block, int) {
        if (job.stop.stop_requested()) return;
        const Index begin = queries.begin + block * kBlock;
        for (Index query = begin; query < std::min(begin + kBlock, queries.end); ++query) {
          double& weight = weights[static_cast<std::size_t>(query - queries.begin)];
          for (Index key = word.begin; key < word.end; ++key)
            weight += head->weight(query, key).value_or(0.0);
        }
      });
      check_stop(job.stop, "readers of a word");
      WordReader reader{layer, q_head, 0.0, 0.0, queries.begin};
      for (std::size_t i = 0; i < weights.size(); ++i) {
        reader.received += weights[i];
        if (weights[i] <= reader.most) continue;
        reader.most = weights[i];
        reader.from = queries.begin + static_cast<Index>(i);
      }
      readers.heads.push_back(reader);
      if (job.progress) job.progress({"readers", ++n_done, n_heads, "heads"});
    }
  }
  std::ranges::stable_sort(readers.heads, std::ranges::greater{}, &WordReader::received);
  return readers;
}

}  // namespace

void ReadersList::draw(PanelContext& context, const std::shared_ptr<const Document>& document,
                       std::optional<TokenRange> word) {
  busy_ = false;
  const bool has_word = word && document->info().capture.qkv;
  ImGui::BeginDisabled(!has_word);
  if (ImGui::Button("Who reads it?")) ImGui::OpenPopup("readers");
  landmark("who reads it");
  ImGui::EndDisabled();
  help_tooltip(
      "The heads that give the found word (or the selected key) most attention from later "
      "on, and the token from which they give it most.");
  if (!has_word || !ImGui::BeginPopup("readers")) return;
  const auto view =
      slot_.ask(context.session.bench(),
                fmt::format("{}readers/{}/{}", document->key(), word->begin, word->end),
                {fmt::format("Who reads position {}", word->begin), Lane::heavy},
                [document, word = *word](JobContext& job) {
                  return word_readers(document->source(), word, job);
                });
  busy_ = view.is_pending();
  readers_ = view.fresh ? view.value : nullptr;
  ImGui::TextUnformatted(
      fmt::format("“{}” at {} is read by", document->text_of(*word, kMostText), word->begin)
          .c_str());
  const ImVec2 size{context.look.px(400), context.look.px(300)};
  ImGui::BeginChild("list", size);
  if (readers_) {
    draw_lines(context, *document);
  } else {
    report_job(context, slot_, view.status, /*has_value=*/false, /*fresh=*/false);
  }
  ImGui::EndChild();
  ImGui::EndPopup();
}

void ReadersList::draw_lines(PanelContext& context, const Document& document) {
  const Selection& selected = context.session.selection();
  const std::size_t n = std::min(readers_->heads.size(), kMostLines);
  for (std::size_t i = 0; i < n; ++i) {
    const WordReader& reader = readers_->heads[i];
    const std::string words =
        fmt::format("layer {} head {}   {} in all   most {} from {} “{}”", reader.layer,
                    reader.q_head, number_text(reader.received, 3), percent_text(reader.most),
                    reader.from, document.token_text(reader.from));
    const bool is_selected = selected.layer == reader.layer && selected.q_head == reader.q_head;
    ImGui::PushID(static_cast<int>(i));
    if (ImGui::Selectable(words.c_str(), is_selected, ImGuiSelectableFlags_DontClosePopups)) {
      context.session.select("reader of a word", [&](Selection& s) {
        s.layer = reader.layer;
        s.q_head = reader.q_head;
        s.query = reader.from;
        s.key = readers_->word.begin;
      });
    }
    pointing_line(Pointed::at_head(reader.layer, reader.q_head));
    ImGui::PopID();
    landmark(fmt::format("reader layer {} head {}", reader.layer, reader.q_head));
  }
  if (readers_->heads.size() > n)
    ImGui::TextDisabled("%s", fmt::format("and {} more", readers_->heads.size() - n).c_str());
}

void ReadersList::forget() {
  slot_.clear();
  readers_.reset();
  busy_ = false;
}

}  // namespace kvscope::gui
