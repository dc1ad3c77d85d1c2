#include "kernels/cuda/mpi_world.hpp"

#include <fmt/format.h>

#include "kernels/cuda/nccl_api.hpp"

namespace gtp {

namespace {

void check(int error, const char* what) {
  if (error == MPI_SUCCESS) return;
  throw RuntimeError(RuntimeStatus::kCollectiveFailed, fmt::format("{} failed with {}", what, error));
}

int rank_on_host(MPI_Comm communicator) {
  MPI_Comm host = MPI_COMM_NULL;
  int rank = 0;
  check(MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
  check(MPI_Comm_rank(host, &rank), "MPI_Comm_rank");
  check(MPI_Comm_free(&host), "MPI_Comm_free");
  return rank;
}

}  // namespace

NcclWorld nccl_world_from_mpi(MPI_Comm communicator, NcclOptions options) {
  int rank = 0;
  int size = 1;
  check(MPI_Comm_rank(communicator, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(communicator, &size), "MPI_Comm_size");
  if (options.device < 0) options.device = rank_on_host(communicator);
  cuda::prepare_nccl_environment();
  ncclUniqueId id{};
  if (rank == 0) cuda::nccl_check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  check(MPI_Bcast(id.internal, static_cast<int>(sizeof id.internal), MPI_BYTE, 0, communicator), "MPI_Bcast");
  return NcclWorld::from_unique_id(rank, size, id, options);
}

}  // namespace gtp
