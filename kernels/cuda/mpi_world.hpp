// NcclWorld for programs that were started with mpirun. Only built with the option `mpi`.
#pragma once

#include <mpi.h>

#include "kernels/cuda/nccl_world.hpp"

namespace gtp {

/// Collective over `communicator`, whose ranks become the world's. `options.device` -1: the rank among those of the
/// host. MPI is needed only during the call. Failures of peers are noticed as by NcclWorld::from_unique_id.
NcclWorld nccl_world_from_mpi(MPI_Comm communicator, NcclOptions options = {});

}  // namespace gtp
