// Start and end of a job of Gloo processes: the environment, the store, who is there.
#include "kernels/gloo_world.hpp"

#include <fmt/format.h>
#include <gloo/transport/tcp/device.h>

#include <charconv>
#include <cstdlib>

#include "kernels/signal_guard.hpp"

namespace gtp {

namespace {

constexpr std::int64_t kMaxWorldSize = 1 << 16;

using Variable = std::function<std::optional<std::string>(const char*)>;

[[noreturn]] void refuse(std::string text) { throw RuntimeError(RuntimeStatus::kInvalidPlan, std::move(text)); }

std::string required(const Variable& variable, const char* name) {
  const std::optional<std::string> value = variable(name);
  if (!value || value->empty()) {
    refuse(
        fmt::format("the environment variable {} is not set: start with torchrun, or set RANK, WORLD_SIZE, "
                    "LOCAL_RANK, MASTER_ADDR and MASTER_PORT",
                    name));
  }
  return *value;
}

std::int64_t number(const std::string& text, const char* name, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
    refuse(fmt::format("{} is `{}`, not a number from {} to {}", name, text.substr(0, 64), least, most));
  }
  return value;
}

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

}  // namespace

GlooConfig gloo_config_from(const Variable& variable) {
  GlooConfig config;
  config.world_size = number(required(variable, "WORLD_SIZE"), "WORLD_SIZE", 1, kMaxWorldSize);
  config.rank = number(required(variable, "RANK"), "RANK", 0, config.world_size - 1);
  config.local_rank = number(required(variable, "LOCAL_RANK"), "LOCAL_RANK", 0, config.world_size - 1);
  config.master_addr = required(variable, "MASTER_ADDR");
  const char* port = variable("GTP_STORE_PORT") ? "GTP_STORE_PORT" : "MASTER_PORT";
  config.master_port = static_cast<std::uint16_t>(number(required(variable, port), port, 1, 65535));
  return config;
}

GlooWorld GlooWorld::from_environment(std::chrono::milliseconds time_limit) {
  GlooConfig config = gloo_config_from(environment);
  config.time_limit = time_limit;
  return GlooWorld(std::move(config));
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
