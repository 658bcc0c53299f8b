#include "gui/model/jobs/cache.hpp"

namespace kvscope::gui {

std::shared_ptr<const void> Cache::find_raw(std::string_view key, std::type_index type) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end() || found->second->type != type) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->value;
}

void Cache::put_raw(std::string_view key, std::type_index type, std::shared_ptr<const void> value,
                    std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (const auto found = by_key_.find(key); found != by_key_.end()) erase(found->second);
  if (bytes > limit_) return;
  entries_.push_front({std::string(key), type, std::move(value), bytes});
  by_key_.emplace(entries_.front().key, entries_.begin());
  bytes_ += bytes;
  shrink();
}

void Cache::drop_prefix(std::string_view prefix) {
  const std::lock_guard lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (entry->key.starts_with(prefix)) erase(entry);
    entry = next;
  }
}

std::size_t Cache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void Cache::shrink() {
  while (bytes_ > limit_ && !entries_.empty()) erase(std::prev(entries_.end()));
}

void Cache::erase(std::list<Entry>::iterator entry) {
  bytes_ -= entry->bytes;
  by_key_.erase(entry->key);
  entries_.erase(entry);
}

}  // namespace kvscope::gui
