// SHA-256 of text that arrives in pieces, for comparing with recorded digests.
#pragma once

#include <nettle/sha2.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace gtp::test {

class Sha256 {
 public:
  Sha256() { sha256_init(&state_); }

  void operator()(std::string_view piece) {
    sha256_update(&state_, piece.size(), reinterpret_cast<const std::uint8_t*>(piece.data()));
  }

  /// Lower-case hexadecimal of everything so far; starts anew.
  std::string hex() {
    std::array<std::uint8_t, SHA256_DIGEST_SIZE> digest{};
    sha256_digest(&state_, digest.size(), digest.data());
    std::string text;
    for (const std::uint8_t byte : digest) {
      text += "0123456789abcdef"[byte >> 4];
      text += "0123456789abcdef"[byte & 15];
    }
    return text;
  }

 private:
  sha256_ctx state_;
};

}  // namespace gtp::test
