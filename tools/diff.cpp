#include "tools/diff.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace gtp::cli {

namespace {

const Derivation& derivation_of(const Checked& checked) { return checked.report->derivation; }

Said said_of(const Checked& checked, OptionId option) {
  const Config& config = checked.loaded.config;
  const Setting* setting = config.given(option);
  if (setting != nullptr && !is_none(setting->value)) return {Said::How::Given, &setting->value};
  if (config.given_unknown(option)) return {Said::How::Variable, nullptr};
  if (!exists(option, config.target())) return {Said::How::NoOption, nullptr};
  const Value* value = derivation_of(checked).facts.original(option);
  return {value == nullptr ? Said::How::Unknown : Said::How::Default, value};
}

/// A default beside nothing known is no difference: the other input only does not speak of the section.
bool differ(const Said& a, const Said& b) {
  if (a.value != nullptr && b.value != nullptr) return *a.value != *b.value;
  if (a.how == b.how) return false;
  const auto speaks = [](const Said& said) { return said.how == Said::How::Given || said.how == Said::How::Variable; };
  return speaks(a) || speaks(b);
}

bool differ(const Value* a, const Value* b) { return (a == nullptr || b == nullptr) ? a != b : *a != *b; }

bool is_derived_name(OptionId option) {
  return std::find(kDerivedNames.begin(), kDerivedNames.end(), option) != kDerivedNames.end();
}

void compare_options(Difference& d) {
  std::vector<OptionId> ids(sorted_options().begin(), sorted_options().end());
  std::ranges::sort(ids, {}, &OptionId::index);
  for (const OptionId option : ids) {
    if (kOptions[option.index].section == Section::Derived) continue;
    const Said a = said_of(d.a, option), b = said_of(d.b, option);
    if (differ(a, b)) d.options.push_back({option, a, b});
  }
}

void compare_derived(Difference& d) {
  const Derivation &a = derivation_of(d.a), &b = derivation_of(d.b);
  const auto known = [](const Facts& facts, OptionId option) {
    return facts.has(option) ? facts.find(option) : nullptr;
  };
  for (const OptionId option : kDerivedNames)
    if (const Value* x = known(a.facts, option), *y = known(b.facts, option); differ(x, y))
      d.derived.push_back({option, x, y});
  const auto is_listed = [&](OptionId option) {
    return std::ranges::find(d.options, option, &OptionDifference::option) != d.options.end();
  };
  for (const OptionId option : sorted_options()) {
    if (kOptions[option.index].section == Section::Derived || is_derived_name(option)) continue;
    const Value *x = known(a.facts, option), *y = known(b.facts, option);
    const bool changed = (x != nullptr && y != nullptr) && differ(x, y);
    if (changed && !is_listed(option)) d.derived.push_back({option, x, y});
  }
  const auto layers = [](const Derivation& of) { return of.layers_per_stage ? &*of.layers_per_stage : nullptr; };
  const LayersPerStage *x = layers(a), *y = layers(b);
  if ((x == nullptr || y == nullptr) ? x != y : *x != *y) d.layers = LayersDifference{x, y};
}

void compare_env(Difference& d) {
  const Config &a = d.a.loaded.config, &b = d.b.loaded.config;
  d.env_known_differs = a.env_known != b.env_known;
  std::vector<std::string> names;
  for (const Config* config : {&a, &b})
    for (const Variable& variable : config->env) names.push_back(variable.name);
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const auto value = [](const Checked& checked, const std::string& name) {
    const Variable* variable = derivation_of(checked).facts.variable(name);
    return variable == nullptr ? nullptr : &variable->value;
  };
  for (std::string& name : names) {
    const std::string *x = value(d.a, name), *y = value(d.b, name);
    if (x == nullptr || y == nullptr || *x != *y) d.env.push_back({std::move(name), x, y});
  }
}

void compare_checkpoint(Difference& d) {
  for (const OptionId option : sorted_options()) {
    const Value *x = d.a.loaded.config.checkpoint_value(option), *y = d.b.loaded.config.checkpoint_value(option);
    if (differ(x, y)) d.checkpoint.push_back({option, x, y});
  }
}

/// More members than anyone waits for are not compared.
constexpr std::int64_t kMostCompared = std::int64_t{1} << 20U;

bool same_members(const GroupView& a, const GroupView& b, std::int64_t& budget) {
  if (a.size() != b.size()) return false;
  for (auto x = a.begin(), y = b.begin(); x != a.end() && budget > 0; ++x, ++y, --budget)
    if (*x != *y) return false;
  return true;
}

/// Of the first group of `a` that `b` does not have, the first rank. The lowest rank that differs between two families
/// is always the first of its group, because groups are sorted and whoever stands before it is with the same ranks.
std::optional<std::int64_t> first_lacking(const GroupFamily& a, const GroupFamily& b) {
  std::int64_t budget = kMostCompared;
  for (const GroupView group : a) {
    const auto place = b.group_of(group.front());
    if (!place || !same_members(group, *b.group(place->group), budget)) return group.front();
    if (--budget <= 0) break;
  }
  return std::nullopt;
}

std::optional<std::int64_t> first_difference(const GroupFamily& a, const GroupFamily& b) {
  const auto x = first_lacking(a, b), y = first_lacking(b, a);
  return x && y ? std::min(*x, *y) : x ? x : y;
}

void compare_groups(Difference& d) {
  for (const Checked* checked : {&d.a, &d.b})
    if (checked->verdict != Verdict::Valid || !derivation_of(*checked).topology) return;
  const Topology &a = *derivation_of(d.a).topology, &b = *derivation_of(d.b).topology;
  d.groups.emplace();
  if (a == b) return;
  for (const GroupFamilyRow& row : kGroupFamilies) {
    const GroupFamily x = make_group_family(a, row), y = make_group_family(b, row);
    if (x != y) d.groups->push_back({&row, x, y, first_difference(x, y)});
  }
}

bool same(const Diagnostic& a, const Diagnostic& b) {
  return a.severity == b.severity && a.code == b.code && a.message == b.message &&
         a.primary.option == b.primary.option && a.primary.text == b.primary.text;
}

void compare_diagnostics(Difference& d) {
  for (const Diagnostic& diagnostic : d.b.diagnostics) d.only_b.push_back(&diagnostic);
  for (const Diagnostic& diagnostic : d.a.diagnostics) {
    const auto twin = std::ranges::find_if(d.only_b, [&](const Diagnostic* other) { return same(*other, diagnostic); });
    (twin == d.only_b.end() ? d.only_a : d.both).push_back(&diagnostic);
    if (twin != d.only_b.end()) d.only_b.erase(twin);
  }
}

}  // namespace

bool Difference::any() const {
  return !(a.loaded.config.target() == b.loaded.config.target()) || !options.empty() || env_known_differs ||
         !env.empty() || !checkpoint.empty() || !derived.empty() || layers || (groups && !groups->empty()) ||
         !only_a.empty() || !only_b.empty();
}

Difference compare(const Checked& a, const Checked& b) {
  Difference d{a, b, {}, false, {}, {}, {}, {}, {}, {}, {}, {}};
  compare_options(d);
  compare_env(d);
  compare_checkpoint(d);
  compare_derived(d);
  compare_groups(d);
  compare_diagnostics(d);
  return d;
}

}  // namespace gtp::cli
