#include "notebooks_export/table_presets.hpp"

#include <fmt/format.h>

namespace kvscope {

namespace {

constexpr const char* kScore = "accuracy|score|mass_mean";
constexpr const char* kModel = "model|trace?";
constexpr const char* kLength = "length|n_tokens|context?";

TableSpec quoka_1() {
  TableSpec spec;
  spec.rows = {"selector|method"};
  spec.columns = {kModel, kLength};
  spec.values = {{kScore, Derive::none, "", {}, NumberFormat{2, true, false, false}}};
  spec.binary_lengths = true;
  spec.caption = "Scores by length at one budget (higher is better).";
  spec.label = "tab:by-length";
  return spec;
}

TableSpec quoka_2() {
  TableSpec spec;
  spec.rows = {kModel, "selector|method+budget"};
  spec.columns = {kLength};
  spec.values = {{kScore, Derive::none, "", {}, NumberFormat{2, true, false, false}}};
  spec.row_titles = {{"model|trace", "Model"}, {"selector|method+budget", "Budget"}};
  spec.caption = "Scores by length, full attention and a share of the cache.";
  spec.label = "tab:full-and-share";
  return spec;
}

TableSpec quoka_3() {
  TableSpec spec;
  spec.rows = {"selector|method"};
  spec.columns = {kModel, "budget"};
  spec.values = {{kScore, Derive::ratio, "", {}, NumberFormat{3, false, false, false}}};
  spec.caption = "Scores divided by those of full attention (higher is better).";
  spec.label = "tab:relative";
  return spec;
}

TableSpec quest_passkey() {
  TableSpec spec;
  spec.rows = {"selector|method"};
  spec.columns = {kLength, "budget"};
  spec.values = {{kScore, Derive::none, "", {}, NumberFormat{0, true, true, false}}};
  spec.row_titles = {{"selector|method", "Method / Budget"}};
  spec.caption = "Retrieval by length and budget.";
  spec.label = "tab:passkey";
  return spec;
}

TableSpec specattn_1() {
  TableSpec spec;
  spec.rows = {"selector|method+budget"};
  spec.values = {
      {"perplexity|ppl", Derive::none, "Perplexity", {}, NumberFormat{3, false, false, false}},
      {"perplexity|ppl",
       Derive::difference,
       "Perp. Diff.",
       {},
       NumberFormat{3, false, false, true}},
      {"perplexity|ppl", Derive::relative, "Rel. Increase", {}, NumberFormat{2, true, true, true}},
      {"kv_reduction", Derive::none, "KV Reduction", {}, NumberFormat{1, true, true, false}},
  };
  spec.caption = "Perplexity and KV reduction of sparse attention methods.";
  spec.label = "tab:perplexity";
  return spec;
}

}  // namespace

const std::vector<TablePreset>& table_presets() {
  static const std::vector<TablePreset> presets = {
      {"quoka-1", "QuoKA, Table 1: methods by model and length, scores in points", quoka_1()},
      {"quoka-2", "QuoKA, Table 2: full attention and a share of the cache, by length", quoka_2()},
      {"quoka-3", "QuoKA, Table 3: methods by model and budget, relative to full attention",
       quoka_3()},
      {"quest-passkey", "Quest, pass-key table: methods by budget, accuracy in percent",
       quest_passkey()},
      {"specattn-1", "SpecAttn, Table 1: perplexity, its difference and increase, KV reduction",
       specattn_1()},
  };
  return presets;
}

const TablePreset* find_table_preset(std::string_view name) {
  for (const TablePreset& preset : table_presets()) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

}  // namespace kvscope
