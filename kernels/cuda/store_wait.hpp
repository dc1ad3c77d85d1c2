// Waiting for a key of the store without missing that the job has failed meanwhile. Private to kernels/cuda.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "kernels/cuda/failure_cell.hpp"
#include "kernels/tcp_store.hpp"

namespace gtp::cuda {

/// As TcpStore::get, but also ends, with kAborted, when a peer has failed or is gone.
std::string get_unless_failed(TcpStore& store, std::string_view key, std::chrono::milliseconds limit,
                              const FailureCell& failure);

}  // namespace gtp::cuda
