// The value of one option, and how it is written in a message. `Value{}` is Python's `None`; a value
// that is not known at all is the absence of a `Value`, never a special one.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace gtp {

using IntList = std::vector<std::int64_t>;
using FloatList = std::vector<double>;
using StringList = std::vector<std::string>;
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string, IntList, FloatList, StringList>;

[[nodiscard]] inline bool is_none(const Value& value) { return std::holds_alternative<std::monostate>(value); }

namespace detail {

inline std::string to_text(std::monostate) { return "None"; }
inline std::string to_text(bool value) { return value ? "true" : "false"; }
inline std::string to_text(std::int64_t value) { return fmt::format("{}", value); }
inline std::string to_text(double value) { return fmt::format("{}", value); }
inline std::string to_text(const std::string& value) { return value; }
template <class T>
std::string to_text(const std::vector<T>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

}  // namespace detail

/// The value as a person would write it: `true`, `8`, `1e-05`, `mxfp8`, `[2, 2]`, `None`.
[[nodiscard]] inline std::string to_text(const Value& value) {
  return std::visit([](const auto& v) { return detail::to_text(v); }, value);
}

}  // namespace gtp
