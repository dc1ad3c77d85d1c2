// Start and end of a job of Gloo processes: the store, who is there.
#include "kernels/gloo_world.hpp"

#include <gloo/transport/tcp/device.h>

#include "kernels/signal_guard.hpp"

namespace gtp {

GlooWorld GlooWorld::from_environment(std::chrono::milliseconds time_limit) {
  return GlooWorld(GlooConfig{job_environment(), time_limit});
}

GlooWorld::Impl::Impl(GlooConfig given) : config(std::move(given)) {
  if (config.rank == 0) server = std::make_unique<TcpStoreServer>(config.master_port, config.world_size);
  store = std::make_unique<TcpStore>(
      TcpStoreAddress{config.master_addr, config.master_port, config.rank, config.world_size}, config.time_limit);
  store->wait_for_all(config.time_limit);
  const detail::SigpipeGuard guard;  // for the device's thread, which starts here
  ::gloo::transport::tcp::attr attributes(store->local_address().c_str());
  device = ::gloo::transport::tcp::CreateDevice(attributes);
  backend = std::make_unique<GlooBackend>(*this);
}

GlooWorld::Impl::~Impl() {
  backend.reset();
  store.reset();
  if (server) server->wait_for_goodbyes(config.time_limit);
}

GlooWorld::GlooWorld(GlooConfig config) : impl_(std::make_unique<Impl>(std::move(config))) {}
GlooWorld::GlooWorld(GlooWorld&&) noexcept = default;
GlooWorld::~GlooWorld() = default;

std::int64_t GlooWorld::rank() const noexcept { return impl_->config.rank; }
std::int64_t GlooWorld::size() const noexcept { return impl_->config.world_size; }
std::int64_t GlooWorld::local_rank() const noexcept { return impl_->config.local_rank; }
GlooBackend& GlooWorld::backend() noexcept { return *impl_->backend; }

}  // namespace gtp
