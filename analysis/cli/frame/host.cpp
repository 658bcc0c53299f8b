#include "analysis/cli/frame/host.hpp"

#include <atomic>

namespace kvscope::cli {

namespace {

std::atomic<Host*> current_host{nullptr};

}  // namespace

Host* host() {
  return current_host.load();
}

HostScope::HostScope(Host& host) : before_(current_host.exchange(&host)) {}

HostScope::~HostScope() {
  current_host.store(before_);
}

}  // namespace kvscope::cli
