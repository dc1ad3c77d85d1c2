// What a launcher (torchrun or any other) tells a process through its environment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace gtp {

struct JobEnvironment {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::int64_t local_rank = 0;
  std::string master_addr = "127.0.0.1";
  std::uint16_t master_port = 0;
};

/// Reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, the port being overruled by GTP_STORE_PORT (a
/// torchrun agent may occupy the former). Throws kInvalidPlan naming the variable that is missing or makes no sense.
JobEnvironment job_environment_from(const std::function<std::optional<std::string>(const char*)>& variable);
/// Of this process.
JobEnvironment job_environment();

}  // namespace gtp
