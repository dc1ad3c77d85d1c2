// Keeps SIGPIPE from ending the process while a library that does not ask for EPIPE writes to sockets whose peer may be
// gone. It changes the calling thread only; threads that it starts in the meantime inherit the mask.
#pragma once

#include <csignal>
#include <ctime>

namespace gtp::detail {

class SigpipeGuard {
 public:
  SigpipeGuard() noexcept {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  /// Takes back a signal that came in the meantime before it could be delivered.
  ~SigpipeGuard() {
    const timespec at_once{};
    if (!was_pending_) {
      while (sigtimedwait(&sigpipe_, nullptr, &at_once) == SIGPIPE) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;

 private:
  sigset_t sigpipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

}  // namespace gtp::detail
