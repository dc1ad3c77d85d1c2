#include "weights_file.hpp"

#include <bit>
#include <filesystem>
#include <fstream>
#include <limits>
#include <type_traits>

namespace gtp::train {

namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

template <class T>
void put(std::ostream& file, const T* values, std::size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  file.write(reinterpret_cast<const char*>(values), static_cast<std::streamsize>(count * sizeof(T)));
}
void put(std::ostream& file, std::uint64_t value) { put(file, &value, 1); }

/// What is left of a file. Sizes in it are believed only as far as the file is long.
class Reader {
 public:
  explicit Reader(const std::string& path) : file_(path, std::ios::binary) {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    left_ = error ? 0 : static_cast<std::uint64_t>(size);
  }

  bool at_end() const noexcept { return left_ == 0; }

  template <class T>
  bool get(std::vector<T>& out, std::uint64_t count) {
    if (count > left_ / sizeof(T)) return false;
    out.resize(static_cast<std::size_t>(count));
    file_.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(count * sizeof(T)));
    left_ -= count * sizeof(T);
    return static_cast<bool>(file_);
  }
  bool get(std::uint64_t& out) {
    std::vector<std::uint64_t> value;
    if (!get(value, 1)) return false;
    out = value[0];
    return true;
  }

 private:
  std::ifstream file_;
  std::uint64_t left_ = 0;
};

bool read_piece(Reader& reader, WeightPiece& out) {
  std::uint64_t length = 0, rows = 0, cols = 0, count = 0;
  std::vector<char> name;
  std::vector<std::uint64_t> where;
  if (!reader.get(length) || !reader.get(name, length) || !reader.get(rows) || !reader.get(cols)) return false;
  if (!reader.get(count) || !reader.get(where, count) || !reader.get(out.values, count)) return false;
  if (cols != 0 && rows > std::numeric_limits<std::uint64_t>::max() / cols) return false;
  for (const std::uint64_t index : where) {
    if (index >= rows * cols) return false;
  }
  out.tensor.assign(name.begin(), name.end());
  out.rows = static_cast<std::size_t>(rows);
  out.cols = static_cast<std::size_t>(cols);
  out.where.assign(where.begin(), where.end());
  return true;
}

bool read_file(const std::string& path, std::vector<WeightPiece>& out) {
  Reader reader(path);
  while (!reader.at_end()) {
    if (!read_piece(reader, out.emplace_back())) return false;
  }
  return true;
}

}  // namespace

bool write_weights(const std::string& path, std::span<const TrainLog> ranks) {
  std::ofstream file(path, std::ios::binary);
  for (const TrainLog& log : ranks) {
    for (const WeightPiece& piece : log.pieces) {
      const std::vector<std::uint64_t> where(piece.where.begin(), piece.where.end());
      put(file, piece.tensor.size());
      put(file, piece.tensor.data(), piece.tensor.size());
      for (const std::uint64_t number : {piece.rows, piece.cols, where.size()}) put(file, number);
      put(file, where.data(), where.size());
      put(file, piece.values.data(), piece.values.size());
    }
  }
  return static_cast<bool>(file.flush());
}

std::optional<std::vector<WeightPiece>> read_weights(const std::string& path) {
  std::vector<WeightPiece> out;
  const auto numbered = [&](std::size_t rank) { return path + "." + std::to_string(rank); };
  if (std::filesystem::is_regular_file(path))
    return read_file(path, out) ? std::optional(std::move(out)) : std::nullopt;
  for (std::size_t rank = 0; std::filesystem::is_regular_file(numbered(rank)); ++rank) {
    if (!read_file(numbered(rank), out)) return std::nullopt;
  }
  return out.empty() ? std::nullopt : std::optional(std::move(out));
}

}  // namespace gtp::train
