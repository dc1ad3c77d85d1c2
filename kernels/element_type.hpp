// Element types that reductions and the small kernels of a backend know. Quantized weights travel as bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gtp {

enum class ElementType : std::uint8_t { kByte, kBFloat16, kFloat32 };

constexpr std::size_t element_bytes(ElementType type) noexcept {
  switch (type) {
    case ElementType::kByte:
      return 1;
    case ElementType::kBFloat16:
      return 2;
    case ElementType::kFloat32:
      return 4;
  }
  return 1;
}

constexpr std::string_view element_name(ElementType type) noexcept {
  switch (type) {
    case ElementType::kByte:
      return "byte";
    case ElementType::kBFloat16:
      return "bf16";
    case ElementType::kFloat32:
      return "fp32";
  }
  return "";
}

}  // namespace gtp
