// The files that a NeMo-RL configuration builds on.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gtp/rules/form.hpp>

#include "validators/interpolation.hpp"
#include "validators/nemo_rl.hpp"
#include "validators/yaml_events.hpp"

namespace gtp::readers {

namespace {

/// More than any chain that a person keeps in mind; real ones are four files long.
constexpr std::size_t kMaxChain = 16, kMaxFiles = 64, kMaxIncludedBytes = std::size_t{16} << 20U;

bool is_missing(const Node& value) { return value.kind == Kind::Scalar && value.text == "???"; }

void merge(Node& base, Node child);

void merge_entry(Entry& base, Entry child) {
  base.key_place = child.key_place;
  if (base.value.kind == Kind::Map && child.value.kind == Kind::Map)
    merge(base.value, std::move(child.value));
  else
    base.value = std::move(child.value);
}

/// Later values win; maps are merged, lists are replaced. `???` stands for a value that another file gives.
void merge(Node& base, Node child) {
  std::unordered_map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < base.entries.size(); ++i)
    if (!base.entries[i].overridden) index[base.entries[i].key] = i;
  base.place = child.place;
  for (Entry& entry : child.entries) {
    if (entry.overridden) continue;
    const auto known = index.find(entry.key);
    if (known == index.end())
      base.entries.push_back(std::move(entry));
    else if (!is_missing(entry.value))
      merge_entry(base.entries[known->second], std::move(entry));
  }
}

/// A top-level group with `_override_: true` replaces the one below it.
void apply_override_marks(Node& base, Node& child) {
  for (Entry& entry : child.entries) {
    if (entry.overridden || entry.value.kind != Kind::Map) continue;
    const Node* mark = find(entry.value, "_override_");
    const bool replaces = mark != nullptr && (mark->text == "true" || mark->text == "True");
    if (!replaces) continue;
    std::erase_if(entry.value.entries, [](const Entry& e) { return e.key == "_override_"; });
    std::erase_if(base.entries, [&](const Entry& e) { return e.key == entry.key; });
  }
}

class Composer {
 public:
  Composer(std::string name, const Include& include, Sources& sources, Diagnostics& out)
      : include_(include), sources_(sources), out_(out), chain_{std::move(name)} {}

  std::optional<Node> compose(Node root) {
    const Node* defaults = find(root, "defaults");
    if (defaults == nullptr) return root;
    const Node names = *defaults;
    std::erase_if(root.entries, [](const Entry& e) { return e.key == "defaults"; });
    Node base;
    base.kind = Kind::Map;
    if (names.kind == Kind::Scalar && !add(base, names)) return std::nullopt;
    for (const Node& item : names.items)
      if (!add(base, item)) return std::nullopt;
    apply_override_marks(base, root);
    merge(base, std::move(root));
    return base;
  }

 private:
  bool fail(Place place, std::string label) {
    out_.push_back(rules::at_place(rules::kUnreadable, "", place, std::move(label)));
    out_.back().help = "correct the path, which is relative to the file that it stands in";
    return false;
  }

  bool add(Node& base, const Node& name) {
    if (name.kind != Kind::Scalar) return fail(name.place, "expected the path of a file");
    if (has_interpolation(name.text)) return fail(name.place, fmt::format("`{}` is not known here", name.text));
    std::optional<Node> root = read(name);
    if (!root) return false;
    if (root->kind == Kind::Null) return true;
    if (root->kind != Kind::Map) return fail(name.place, fmt::format("`{}` has no options and values", name.text));
    std::optional<Node> composed = compose(*std::move(root));
    chain_.pop_back();
    if (!composed) return false;
    apply_override_marks(base, *composed);
    merge(base, *std::move(composed));
    return true;
  }

  /// On success the file is on the chain, unless it is empty.
  std::optional<Node> read(const Node& name) {
    const std::string from = sources_[name.place.source].name;
    Included included = include_ ? include_(from, name.text) : Included{{}, "no other file is read here"};
    if (!included.text) return refuse(name, included.reason);
    const Text& text = *included.text;
    if (std::find(chain_.begin(), chain_.end(), text.name) != chain_.end()) return refuse(name, "builds on itself");
    bytes_ += text.text.size();
    if (chain_.size() >= kMaxChain || ++files_ > kMaxFiles || bytes_ > kMaxIncludedBytes)
      return refuse(name, "one file too many to build on");
    if (find_not_text(text.text)) return refuse(name, "is not a text file");
    const std::uint32_t source = sources_.add(text.name, text.text);
    std::optional<Node> root = read_yaml(sources_[source], source, out_);
    if (root && root->kind == Kind::Map) chain_.push_back(text.name);
    return root;
  }

  std::optional<Node> refuse(const Node& name, std::string_view reason) {
    fail(name.place, fmt::format("`{}`: {}", name.text, reason));
    return std::nullopt;
  }

  const Include& include_;
  Sources& sources_;
  Diagnostics& out_;
  std::vector<std::string> chain_;  // the files that build on the one being read
  std::size_t files_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace

std::optional<Node> with_defaults(Node root, const Include& include, Sources& sources, Diagnostics& out) {
  const std::string name = sources[root.place.source].name;
  return Composer(name, include, sources, out).compose(std::move(root));
}

}  // namespace gtp::readers
