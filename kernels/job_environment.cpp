#include "kernels/job_environment.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "kernels/error.hpp"

namespace gtp {

namespace {

constexpr std::int64_t kMaxWorldSize = 1 << 20;

using Variable = std::function<std::optional<std::string>(const char*)>;

[[noreturn]] void refuse(std::string text) { throw RuntimeError(RuntimeStatus::kInvalidPlan, std::move(text)); }

std::string required(const Variable& variable, const char* name) {
  std::optional<std::string> value = variable(name);
  if (!value || value->empty()) {
    refuse(
        fmt::format("{} is not in the environment: start with torchrun, or set RANK, WORLD_SIZE, LOCAL_RANK, "
                    "MASTER_ADDR and MASTER_PORT",
                    name));
  }
  return std::move(*value);
}

std::int64_t number(const Variable& variable, const char* name, std::int64_t least, std::int64_t most) {
  const std::string text = required(variable, name);
  std::int64_t value = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc{} || end != last || value < least || value > most) {
    refuse(fmt::format("{} is `{}`, not a number from {} to {}", name, text.substr(0, 64), least, most));
  }
  return value;
}

}  // namespace

JobEnvironment job_environment_from(const Variable& variable) {
  JobEnvironment job;
  job.world_size = number(variable, "WORLD_SIZE", 1, kMaxWorldSize);
  job.rank = number(variable, "RANK", 0, job.world_size - 1);
  job.local_rank = number(variable, "LOCAL_RANK", 0, job.world_size - 1);
  job.master_addr = required(variable, "MASTER_ADDR");
  const char* port = variable("GTP_STORE_PORT") ? "GTP_STORE_PORT" : "MASTER_PORT";
  job.master_port = static_cast<std::uint16_t>(number(variable, port, 1, 65535));
  return job;
}

JobEnvironment job_environment() {
  return job_environment_from([](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  });
}

}  // namespace gtp
