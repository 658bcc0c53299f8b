#include "traces/kept_recording.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/new_file.hpp"
#include "core/base/read_files.hpp"
#include "traces/hash.hpp"
#include "traces/layout.hpp"
#include "traces/raw_file.hpp"
#include "traces/whole_calls.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;

/// Rows of all layers from a file that may grow meanwhile.
class KeptRows final : public KvStore {
 public:
  KeptRows(fs::path file, const TraceInfo& info, Index n_tokens)
      : KvStore(info.n_layers, n_tokens, DType::f32, n_tokens),
        file_(std::move(file)),
        info_(info) {}
  void advance(Index) override { fail(); }
  void truncate(Index) override { fail(); }
  void copy_from(const KvStore&) override { fail(); }
  TensorView<const float> host_k(Index layer, Index begin, Index end) const override {
    return read(layer, "k", begin, end);
  }
  TensorView<const float> host_v(Index layer, Index begin, Index end) const override {
    return read(layer, "v", begin, end);
  }

 private:
  [[noreturn]] static void fail() { throw ConfigError("recorded rows are only read"); }
  TensorView<const float> read(Index layer, const char* name, Index begin, Index end) const {
    if (!layout_) layout_.emplace(open_layout(file_));
    const std::string path = schema::layer_path(layer, name);
    const auto place = layout_->find(path);
    if (!place) throw FormatError("{}: {} is missing", layout_->file.name(), path);
    const DType dtype = h5::dtype_of(layout_->arrays[*place].type).value();
    const LayerShape heads = info_.shape(layer);
    const Index n = end - begin, width = heads.d_head;
    if (rows_.count() == 0 || rows_.dim(0) != heads.n_kv || rows_.dim(2) != width)
      rows_ = Tensor<float>::uninitialized({heads.n_kv, n_tokens_, width});
    bytes_.resize(static_cast<std::size_t>(n * width) * size_of(dtype));
    for (Index head = 0; head < rows_.dim(0); ++head) {
      layout_->data(*place).read({head, begin, 0}, {1, n, width}, bytes_.data());
      to_float(dtype, bytes_.data(), &rows_(head, Index{0}, Index{0}),
               static_cast<std::size_t>(n * width));
    }
    return std::as_const(rows_).view().range(1, 0, n);
  }

  fs::path file_;
  TraceInfo info_;
  mutable std::optional<TraceLayout> layout_;
  mutable Tensor<float> rows_;
  mutable std::vector<std::byte> bytes_;  // of one head
};

/// What a recording of `here` would have had otherwise than the one of `there`; empty if nothing.
std::string difference(const TraceInfo& there, const TraceInfo& here) {
  const auto differs = [](std::string_view what, const auto& was, const auto& is) {
    return fmt::format("{} {}, and this is {}", what, was, is);
  };
  if (there.writer != here.writer) return differs("written by", there.writer, here.writer);
  if (there.model_hash != here.model_hash)
    return differs("of the model", there.model_name + " " + there.model_hash,
                   here.model_name + " " + here.model_hash);
  if (there.tokenizer_hash != here.tokenizer_hash) return "of another tokenizer";
  if (there.matmul != here.matmul || there.kv_dtype != here.kv_dtype)
    return differs("computed in", there.matmul + " " + there.kv_dtype,
                   here.matmul + " " + here.kv_dtype);
  if (there.chunk != here.chunk) return differs("in chunks of", there.chunk, here.chunk);
  if (there.n_tokens != here.n_tokens || there.n_prompt != here.n_prompt)
    return differs("of", fmt::format("{} tokens, {} of the prompt", there.n_tokens, there.n_prompt),
                   fmt::format("of {}, {}", here.n_tokens, here.n_prompt));
  if (there.capture != here.capture) return "of other arrays (--capture)";
  if (hash_contents(there, {}, {}, {}) != hash_contents(here, {}, {}, {}))
    return "of other layers, heads, rows or storage (--layers, --heads, --rows, --dtype)";
  return {};
}

Index n_whole_calls(const fs::path& part, const ProgressFn& progress, const std::stop_token& stop) {
  try {
    return count_whole_calls(part, progress, stop).n_good;
  } catch (const FormatError& error) {
    throw FormatError("{}; delete it to begin anew", error.what());
  }
}

bool has_exact_rows(const TraceInfo& plan) {
  return plan.dtype == DType::f32 || (plan.dtype == DType::bf16 && plan.kv_dtype == "bf16");
}

}  // namespace

std::string why_not_resumable(const TraceInfo& plan) {
  if (!plan.capture.qkv)
    return "it has no keys and values (--capture qkv), from which it would go on";
  const auto lacks_heads = [&](Index layer) {
    return std::ssize(plan.kv_heads_of(layer)) != plan.shape(layer).n_kv;
  };
  if (std::ssize(plan.layers) != plan.n_layers || std::ranges::any_of(plan.layers, lacks_heads))
    return "it has the keys of some layers or heads, and would go on from those of all";
  if (!has_exact_rows(plan))
    return fmt::format(
        "it stores keys in {}, the model computes them in {}, and it would go on from rounded ones",
        enum_name(plan.dtype), plan.kv_dtype.empty() ? "f32" : plan.kv_dtype);
  return {};
}

KeptRecording::KeptRecording(const fs::path& out, const ProgressFn& progress,
                             const std::stop_token& stop, bool or_whole)
    : growing_(part_path(out)) {
  remove_old_temporaries(out, std::chrono::seconds(0));
  if (!fs::exists(growing_)) {
    growing_ = out;
    is_complete_ = or_whole && fs::exists(out);
    if (!is_complete_) return;
  }
  const OwnFiles own;  // what is read here is written on
  const Index n_good = n_whole_calls(growing_, progress, stop);
  if (n_good == 0) return;

  const TraceLayout layout = open_layout(growing_);
  plan_ = layout.info;
  if (is_complete_ && plan_.status != TraceStatus::complete)
    throw IoError("{} exists and is {}; --overwrite begins anew", out.string(),
                  enum_name(plan_.status));
  const auto n_planned = static_cast<Index>(plan_.calls.size());
  const auto n_chunks =
      static_cast<Index>(std::ranges::count(plan_.calls, false, &ForwardCall::is_decode));
  n_calls_ = n_good;
  if (n_calls_ < n_planned && n_calls_ >= n_chunks) --n_calls_;
  const Index n_recorded = plan_.calls[static_cast<std::size_t>(n_good - 1)].tokens.end;
  tokens_.resize(static_cast<std::size_t>(std::max(n_recorded, plan_.n_prompt)));
  layout.data(0).read({0}, {static_cast<Index>(tokens_.size())}, tokens_.data());
  for (std::size_t i = 0; i < layout.arrays.size(); ++i) {
    if (!is_complete_ && h5::count(layout.arrays[i].dims) > 0 && !layout.data(i).file_offset())
      refuse("compressed, so that nobody can go on writing it");
  }
}

Index KeptRecording::n_tokens() const {
  return n_calls_ == 0 ? 0 : plan_.calls[static_cast<std::size_t>(n_calls_ - 1)].tokens.end;
}

void KeptRecording::refuse(const std::string& what) const {
  if (is_complete_)
    throw IoError("{} exists and is another recording: it is {}; --overwrite replaces it",
                  growing_.string(), what);
  throw ConfigError(
      "{} cannot be gone on with: it is {}; give it what it was begun with, save it with 'kvscope "
      "recover {}', or record under another name",
      growing_.string(), what, growing_.string());
}

void KeptRecording::check(const TraceInfo& info, std::span<const TokenId> prompt,
                          bool may_end) const {
  const std::string reason = why_not_resumable(info);
  if (!reason.empty())
    throw ConfigError("a killed recording of this could not be gone on with: {}", reason);
  if (n_calls_ == 0) return;
  const bool has_ended = may_end && is_complete_ && plan_.n_tokens > plan_.n_prompt &&
                         plan_.calls.size() < info.calls.size();
  const std::string what = difference(plan_, has_ended ? cut_to_calls(info, n_calls_) : info);
  if (!what.empty()) refuse(what);
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] == tokens_[i]) continue;
    refuse(fmt::format("of another text (its token {} has the id {}, and this is {})", i,
                       tokens_[i], prompt[i]));
  }
}

std::unique_ptr<KvStore> KeptRecording::rows() const {
  const OwnFiles own;
  return std::make_unique<KeptRows>(growing_, plan_, n_tokens());
}

}  // namespace kvscope
