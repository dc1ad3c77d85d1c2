// Final weights as a file, to compare runs with each other. A file is a sequence of pieces, all numbers little-endian:
//
//   u64 length of the name, the name
//   u64 rows, u64 cols        of the whole tensor
//   u64 count
//   u64 index[count]          in the whole tensor, row by row
//   f32 value[count]
//
// A run of threads writes one file, a run of processes one each: FILE.0, FILE.1...
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train.hpp"

namespace gtp::train {

/// False if the file cannot be written.
bool write_weights(const std::string& path, std::span<const TrainLog> ranks);

/// Pieces of `path` or, if there is no such file, of `path`.0, `path`.1 and so on; nullopt if there is neither, or one
/// is damaged.
std::optional<std::vector<WeightPiece>> read_weights(const std::string& path);

}  // namespace gtp::train
