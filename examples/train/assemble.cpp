#include <algorithm>
#include <cstring>

#include "train.hpp"

namespace gtp::train {

std::optional<std::map<std::string, std::vector<float>>> assemble(std::span<const TrainLog> ranks) {
  std::map<std::string, std::vector<float>> whole;
  std::map<std::string, std::vector<bool>> known;
  for (const TrainLog& log : ranks) {
    for (const WeightPiece& piece : log.pieces) {
      std::vector<float>& values = whole[piece.tensor];
      std::vector<bool>& seen = known[piece.tensor];
      values.resize(piece.rows * piece.cols);
      seen.resize(values.size());
      for (std::size_t i = 0; i < piece.where.size(); ++i) {
        float& value = values[piece.where[i]];
        if (seen[piece.where[i]] && std::memcmp(&value, &piece.values[i], sizeof value) != 0) return std::nullopt;
        value = piece.values[i];
        seen[piece.where[i]] = true;
      }
    }
  }
  for (const auto& [name, seen] : known) {
    if (std::find(seen.begin(), seen.end(), false) != seen.end()) return std::nullopt;
  }
  return whole;
}

}  // namespace gtp::train
