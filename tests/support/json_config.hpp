// A configuration from a JSON object of option names, as the shared data files hold them.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <utility>

#include <gtp/config.hpp>

namespace gtp::test {

inline Value to_value(const nlohmann::json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  return {};
}

/// Every key must be an option.
inline Config config_of(const nlohmann::json& options) {
  Config config;
  for (const auto& [name, value] : options.items()) config.set(find_option(name).value(), to_value(value));
  return config;
}

/// A derived value as the data files write it; null when unknown or None.
inline nlohmann::json derived_json(const Facts& facts, std::string_view name) {
  const Value* value = facts.find(find_option(name).value());
  if (value == nullptr || is_none(*value)) return nullptr;
  if (const auto* b = std::get_if<bool>(value)) return *b;
  if (const auto* i = std::get_if<std::int64_t>(value)) return *i;
  return std::get<std::string>(*value);
}

}  // namespace gtp::test
