// Frames of the TCP store: how requests and replies are written to bytes and read back without trust. Private to
// tcp_store.cpp and tcp_store_server.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gtp::detail {

inline constexpr std::uint64_t kStoreMagic = 0x3145524F54535447ULL;
inline constexpr std::size_t kMaxFrame = 128 * 1024;
inline constexpr std::size_t kFrameHeader = 4;

enum class StoreOp : std::uint8_t { kHello, kWaitAll, kSet, kGet, kWhy, kFail, kBye };
enum class StoreReply : std::uint8_t { kOk, kTimeout, kRefused };

class FrameWriter {
 public:
  FrameWriter& number(std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) bytes_ += static_cast<char>((value >> shift) & 0xFFU);
    return *this;
  }
  FrameWriter& byte(std::uint8_t value) {
    bytes_ += static_cast<char>(value);
    return *this;
  }
  FrameWriter& text(std::string_view value) {
    number(value.size());
    bytes_ += value;
    return *this;
  }
  /// Length and contents.
  std::string frame() const {
    std::string whole;
    for (int shift = 0; shift < 32; shift += 8) whole += static_cast<char>((bytes_.size() >> shift) & 0xFFU);
    return whole + bytes_;
  }

 private:
  std::string bytes_;
};

/// Each read is nullopt past the end; `done` must hold after the last.
class FrameReader {
 public:
  explicit FrameReader(std::string_view bytes) : rest_(bytes) {}

  std::optional<std::uint8_t> byte() {
    if (rest_.empty()) return std::nullopt;
    const auto value = static_cast<std::uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return value;
  }
  std::optional<std::uint64_t> number() {
    if (rest_.size() < 8) return std::nullopt;
    std::uint64_t value = 0;
    for (unsigned index = 0; index < 8; ++index) {
      value |= std::uint64_t{static_cast<std::uint8_t>(rest_[index])} << (8 * index);
    }
    rest_.remove_prefix(8);
    return value;
  }
  std::optional<std::string_view> text() {
    const std::optional<std::uint64_t> size = number();
    if (!size || *size > rest_.size()) return std::nullopt;
    const std::string_view value = rest_.substr(0, *size);
    rest_.remove_prefix(*size);
    return value;
  }
  bool done() const noexcept { return rest_.empty(); }

 private:
  std::string_view rest_;
};

/// Of the frame that `bytes` begin with; nullopt while the header is incomplete.
inline std::optional<std::size_t> frame_length(std::string_view bytes) {
  if (bytes.size() < kFrameHeader) return std::nullopt;
  std::size_t length = 0;
  for (unsigned index = 0; index < kFrameHeader; ++index) {
    length |= std::size_t{static_cast<std::uint8_t>(bytes[index])} << (8 * index);
  }
  return length;
}

}  // namespace gtp::detail
