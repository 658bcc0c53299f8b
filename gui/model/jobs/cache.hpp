// What was computed or read lately, kept up to a limit in bytes: going back to a layer is instant.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <typeindex>
#include <unordered_map>
#include <utility>

namespace kvscope::gui {

/// Values by key, the ones that were used longest ago dropped first. Whoever holds a value keeps it
/// alive; the limit counts what only the cache holds together with what others hold as well. Safe
/// from several threads.
class Cache {
 public:
  explicit Cache(std::size_t limit_bytes) : limit_(limit_bytes) {}

  /// Null if it is not there or of another type.
  template <class T>
  std::shared_ptr<const T> find(std::string_view key) {
    return std::static_pointer_cast<const T>(find_raw(key, typeid(T)));
  }
  /// Replaces a value of the same key. One larger than the limit is not kept.
  template <class T>
  void put(std::string_view key, std::shared_ptr<const T> value, std::size_t bytes) {
    put_raw(key, typeid(T), std::static_pointer_cast<const void>(std::move(value)), bytes);
  }
  /// Forgets every key that begins so: a file that was closed or changed.
  void drop_prefix(std::string_view prefix);

  std::size_t limit() const { return limit_; }
  std::size_t bytes() const;

 private:
  struct Entry {
    std::string key;
    std::type_index type;
    std::shared_ptr<const void> value;
    std::size_t bytes;
  };
  std::shared_ptr<const void> find_raw(std::string_view key, std::type_index type);
  void put_raw(std::string_view key, std::type_index type, std::shared_ptr<const void> value,
               std::size_t bytes);
  void shrink();
  void erase(std::list<Entry>::iterator entry);

  mutable std::mutex mutex_;
  const std::size_t limit_;
  std::size_t bytes_ = 0;
  std::list<Entry> entries_;  // the last used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;
};

}  // namespace kvscope::gui
