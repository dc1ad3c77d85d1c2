// Making one NCCL communicator: what runs on a thread that may be left behind. Private to nccl_*.cpp.
#pragma once

#include <memory>
#include <string>

#include "kernels/backend.hpp"
#include "kernels/cuda/id_exchange.hpp"
#include "kernels/cuda/nccl_state.hpp"

namespace gtp::cuda {

/// All that the thread uses. `parent`: over the same ranks in the same order, or null.
struct NcclCreation {
  std::shared_ptr<NcclState> state;
  std::shared_ptr<IdExchange> exchange;
  std::shared_ptr<NcclCommunicator> parent;
  CommunicatorSpec spec;
  std::string key;
  std::shared_ptr<NcclCommunicator> made;
};

/// Sets made->handle: split from the parent or made from an id of its own, then connected by one small collective, so
/// that the first real one neither waits for peers nor allocates.
void create(NcclCreation& creation);

}  // namespace gtp::cuda
