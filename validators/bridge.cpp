#include "validators/bridge.hpp"

#include <algorithm>
#include <string>

#include "validators/bridge_homes.hpp"
#include "validators/bridge_values.hpp"

namespace gtp::readers {

namespace {

/// The mark of a `run_config.yaml`.
bool is_whole(const Node& root) {
  const Node* target = find(root, "_target_");
  return target != nullptr && target->kind == Kind::Scalar && target->text.ends_with("ConfigContainer");
}

bool is_section(const Entry& entry) {
  if (!contains(kBridgeSections, entry.key)) return false;
  const bool recipe = entry.key == "mixed_precision" && entry.value.kind == Kind::Scalar;
  return entry.value.kind == Kind::Map || entry.value.kind == Kind::Null || recipe;
}

}  // namespace

bool is_bridge(const Node& root) {
  if (is_whole(root)) return true;
  bool telling = false;
  for (const Entry& entry : root.entries) {
    if (!is_section(entry)) return false;
    telling = telling || contains(kTellingSections, entry.key);
  }
  return telling;
}

void read_bridge(Reading& reading, const Node& root) {
  BridgeValues values(reading, !is_whole(root));
  for (const Entry& entry : root.entries) {
    if (full(reading.out)) {
      report_rest(reading.out);
      break;
    }
    if (!entry.overridden && entry.key != "_target_") values.take(entry.key, entry.value, entry.key_place);
  }
  values.apply();
}

}  // namespace gtp::readers
