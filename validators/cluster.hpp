// Texts that describe hardware: a JSON file of our own, and what nvidia-smi, Slurm, MPI and NCCL write. None says
// everything, so that clusters can be put together.
#pragma once

#include <optional>
#include <string>

#include <gtp/cluster.hpp>
#include <gtp/diagnostic.hpp>

#include "validators/source.hpp"

namespace gtp::readers {

/// The text without the escape sequences that nvidia-smi underlines its header with: blanks stand in their place.
[[nodiscard]] std::string without_escapes(std::string text);

/// The format is detected: JSON, NCCL's topology XML, `nvidia-smi topo -m`, `scontrol show topology` (or
/// topology.conf), variables of Slurm, else a host file. Nothing, and one `kUnreadable`, if it cannot be read.
[[nodiscard]] std::optional<Cluster> read_cluster(const Source& source, std::uint32_t index, Diagnostics& out);

/// Adds what `other` says and `cluster` leaves open; for a host that both list, its GPUs, domain and switches.
void add_missing(Cluster& cluster, Cluster other);

}  // namespace gtp::readers
