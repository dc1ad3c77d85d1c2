#include "validators/yaml_events.hpp"

#include <fmt/format.h>
#include <yaml.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>

#include <gtp/rules/form.hpp>

#include "validators/yaml_places.hpp"

namespace gtp::readers {

namespace {

constexpr std::string_view kStringTag = "tag:yaml.org,2002:str";

std::string_view view(const yaml_char_t* text) {
  return text == nullptr ? std::string_view{} : std::string_view(reinterpret_cast<const char*>(text));
}

class Parser {
 public:
  explicit Parser(std::string_view text) {
    if (yaml_parser_initialize(&parser_) == 0) throw std::bad_alloc();
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  ~Parser() { yaml_parser_delete(&parser_); }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  yaml_parser_t* get() { return &parser_; }

 private:
  yaml_parser_t parser_{};
};

class Event {
 public:
  Event() = default;
  ~Event() { yaml_event_delete(&event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  yaml_event_t* get() { return &event_; }

 private:
  yaml_event_t event_{};
};

bool is_null(std::string_view text) {
  constexpr std::array<std::string_view, 5> kNulls{"", "~", "null", "Null", "NULL"};
  return std::find(kNulls.begin(), kNulls.end(), text) != kNulls.end();
}

struct Anchor {
  Node node;
  std::size_t nodes = 0;
  std::size_t bytes = 0;
};

/// A list or map whose end has not come yet.
struct Open {
  Node node{};
  std::string anchor{};
  bool has_key = false;  ///< of a map: the last entry waits for its value
  std::size_t nodes_before = 0;
  std::size_t bytes_before = 0;
};

/// Builds the tree of one document; every function returns false after `fail`.
class Builder {
 public:
  Builder(YamlPlaces places, Diagnostics& out) : places_(places), out_(out) {}

  bool handle(const yaml_event_t& event) {
    switch (event.type) {
      case YAML_SCALAR_EVENT:
        return scalar(event);
      case YAML_ALIAS_EVENT:
        return alias(event);
      case YAML_SEQUENCE_START_EVENT:
        return open(event, Kind::List, event.data.sequence_start.anchor,
                    event.data.sequence_start.style == YAML_BLOCK_SEQUENCE_STYLE);
      case YAML_MAPPING_START_EVENT:
        return open(event, Kind::Map, event.data.mapping_start.anchor,
                    event.data.mapping_start.style == YAML_BLOCK_MAPPING_STYLE);
      case YAML_SEQUENCE_END_EVENT:
      case YAML_MAPPING_END_EVENT:
        return close(event);
      case YAML_NO_EVENT:
      case YAML_STREAM_START_EVENT:
      case YAML_STREAM_END_EVENT:
      case YAML_DOCUMENT_START_EVENT:
      case YAML_DOCUMENT_END_EVENT:
        break;
    }
    return true;
  }

  bool fail(Place place, std::string label) {
    out_.push_back(rules::at_place(rules::kUnreadable, "", place, std::move(label)));
    return false;
  }

  Node take_root() { return std::move(root_); }
  YamlPlaces& places() { return places_; }

 private:
  bool scalar(const yaml_event_t& event) {
    const auto& scalar = event.data.scalar;
    Node node;
    node.text.assign(reinterpret_cast<const char*>(scalar.value), scalar.length);
    const bool plain = scalar.style == YAML_PLAIN_SCALAR_STYLE;
    node.quoted = scalar.tag != nullptr ? view(scalar.tag) == kStringTag || view(scalar.tag) == "!" : !plain;
    node.kind = plain && scalar.plain_implicit != 0 && is_null(node.text) ? Kind::Null : Kind::Scalar;
    node.place = places_.of(event, scalar.anchor != nullptr || scalar.tag != nullptr);
    ++nodes_;
    bytes_ += node.text.size();
    const std::size_t bytes = node.text.size();
    return add(std::move(node), view(scalar.anchor), 1, bytes);
  }

  bool alias(const yaml_event_t& event) {
    const Place place = places_.of(event, false);
    const auto anchor = anchors_.find(view(event.data.alias.anchor));
    if (anchor == anchors_.end()) return fail(place, "no anchor of this name comes before");
    nodes_ += anchor->second.nodes;
    bytes_ += anchor->second.bytes;
    copied_bytes_ += anchor->second.bytes;
    if (nodes_ > kMaxNodes || copied_bytes_ > kMaxCopiedBytes) return fail(place, "the aliases expand to too much");
    return add(anchor->second.node, {}, 0, 0);
  }

  bool open(const yaml_event_t& event, Kind kind, const yaml_char_t* anchor, bool block) {
    const Place place = places_.of(event, anchor != nullptr);
    if (open_.size() >= kMaxDepth) return fail(place, fmt::format("nested deeper than {} levels", kMaxDepth));
    Open& opened = open_.emplace_back();
    opened.node.kind = kind;
    opened.node.block = block;
    opened.node.place = place;
    opened.anchor = view(anchor);
    opened.nodes_before = nodes_++;
    opened.bytes_before = bytes_;
    return true;
  }

  bool close(const yaml_event_t& event) {
    Open closed = std::move(open_.back());
    open_.pop_back();
    Node& node = closed.node;
    node.place.end = std::max(node.place.begin, node.block ? last_end_ : places_.of(event, false).end);
    if (node.kind == Kind::Map) {
      mark_duplicates(node, out_);
      merge(node);
    }
    return add(std::move(node), closed.anchor, nodes_ - closed.nodes_before, bytes_ - closed.bytes_before);
  }

  /// Puts a complete value where it belongs. `nodes` and `bytes` are what a copy of it takes.
  bool add(Node node, std::string_view anchor, std::size_t nodes, std::size_t bytes) {
    if (nodes_ > kMaxNodes) return fail(node.place, fmt::format("more than {} values", kMaxNodes));
    last_end_ = std::max(last_end_, node.place.end);
    if (!anchor.empty()) {
      anchored_nodes_ += nodes;
      copied_bytes_ += bytes;
      if (anchored_nodes_ > kMaxNodes || copied_bytes_ > kMaxCopiedBytes)
        return fail(node.place, "the anchors hold too much");
      anchors_[std::string(anchor)] = {node, nodes, bytes};
    }
    if (open_.empty())
      root_ = std::move(node);
    else
      add_to(open_.back(), std::move(node));
    return true;
  }

  void add_to(Open& parent, Node node) {
    if (parent.node.kind == Kind::List) {
      parent.node.items.push_back(std::move(node));
    } else if (parent.has_key) {
      parent.node.entries.back().value = std::move(node);
      if (parent.node.entries.back().key_place == Place{}) parent.node.entries.pop_back();
      parent.has_key = false;
    } else {
      add_key(parent, std::move(node));
      parent.has_key = true;
    }
  }

  void add_key(Open& parent, Node node) {
    Entry& entry = parent.node.entries.emplace_back();
    if (node.kind == Kind::Scalar || node.kind == Kind::Null) {
      entry.key = std::move(node.text);
      entry.key_place = node.place;
      entry.overridden = false;
    } else if (!full(out_)) {  // the entry has no place, so it goes as soon as its value has come
      out_.push_back(rules::at_place(rules::kNotUnderstood, "", node.place, "a key that is not a word"));
    }
  }

  /// Resolves `<<`: its maps' entries come in where the map has no key of that name.
  void merge(Node& map) {
    std::vector<Node> merged;
    for (Entry& entry : map.entries) {
      if (entry.key != "<<" || entry.overridden) continue;
      if (entry.value.kind == Kind::Map) merged.push_back(std::move(entry.value));
      if (entry.value.kind == Kind::List)
        for (Node& item : entry.value.items)
          if (item.kind == Kind::Map) merged.push_back(std::move(item));
    }
    if (merged.empty()) return;
    std::erase_if(map.entries, [](const Entry& entry) { return entry.key == "<<"; });
    std::unordered_set<std::string> keys;
    for (const Entry& entry : map.entries) keys.insert(entry.key);
    for (Node& source : merged)
      for (Entry& entry : source.entries)
        if (!entry.overridden && keys.insert(entry.key).second) map.entries.push_back(std::move(entry));
  }

  YamlPlaces places_;
  Diagnostics& out_;
  Node root_{};
  std::vector<Open> open_{};
  std::map<std::string, Anchor, std::less<>> anchors_{};
  std::uint32_t last_end_ = 0;
  std::size_t nodes_ = 0;
  std::size_t bytes_ = 0;
  std::size_t anchored_nodes_ = 0;
  std::size_t copied_bytes_ = 0;
};

bool fail_at_problem(Builder& builder, const yaml_parser_t& parser) {
  const std::size_t at = parser.error == YAML_READER_ERROR ? builder.places().byte_of_offset(parser.problem_offset)
                                                           : builder.places().byte_of(parser.problem_mark.index);
  const std::string_view problem = parser.problem == nullptr ? "not YAML" : parser.problem;
  const std::string_view context = parser.context == nullptr ? "" : parser.context;
  return builder.fail(builder.places().one_character(at),
                      context.empty() ? std::string(problem) : fmt::format("{} {}", problem, context));
}

/// Reads events up to the end of the first document, and one more to see whether another follows.
bool read_events(std::string_view text, Builder& builder, Diagnostics& out) {
  Parser parser(text);
  for (bool ended = false;;) {
    Event event;
    if (yaml_parser_parse(parser.get(), event.get()) == 0) return fail_at_problem(builder, *parser.get());
    if (event.get()->type == YAML_STREAM_END_EVENT) return true;
    if (ended && event.get()->type == YAML_DOCUMENT_START_EVENT) {
      out.push_back(rules::at_place(rules::kNotUnderstood, "", builder.places().of(*event.get(), false),
                                    "only the document above is read"));
      return true;
    }
    ended = ended || event.get()->type == YAML_DOCUMENT_END_EVENT;
    if (!builder.handle(*event.get())) return false;
  }
}

}  // namespace

std::optional<Node> read_yaml(const Source& source, std::uint32_t index, Diagnostics& out) {
  const YamlPlaces places(source.text, index);
  Builder builder(places, out);
  if (!read_events(places.text_without_mark(), builder, out)) return std::nullopt;
  return builder.take_root();
}

}  // namespace gtp::readers
