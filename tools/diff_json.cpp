#include <string_view>

#include "tools/diff.hpp"
#include "tools/explain.hpp"
#include "tools/json_writer.hpp"
#include "tools/render.hpp"

namespace gtp::cli {

namespace {

using Layout = JsonWriter::Layout;

std::string_view to_text(Said::How how) {
  switch (how) {
    case Said::How::Given:
      return "given";
    case Said::How::Default:
      return "default";
    case Said::How::Variable:
      return "variable";
    case Said::How::Unknown:
      return "unknown";
    case Said::How::NoOption:
      return "no-option";
  }
  return "";
}

void write_side(JsonWriter& json, std::string_view key, const Checked& checked) {
  json.key(key);
  json.begin_object();
  json.field("file", checked.file);
  json.field("input_format", checked.input_format);
  json.field("target", checked.loaded.config.target().name);
  json.field("verdict", to_text(checked.verdict));
  json.end();
}

void write_said(JsonWriter& json, std::string_view key, const Said& said) {
  json.key(key);
  json.begin_object();
  json.field("how", to_text(said.how));
  if (said.value != nullptr) json.field("value", *said.value);
  json.end();
}

/// Null: not set, or not known.
template <class T>
void write_or_null(JsonWriter& json, std::string_view key, const T* item) {
  json.key(key);
  item == nullptr ? json.null() : json.value(*item);
}

void write_options(JsonWriter& json, const Difference& d) {
  json.key("options");
  json.begin_array();
  for (const OptionDifference& option : d.options) {
    json.begin_object(Layout::Inline);
    json.field("option", name_of(option.option));
    json.field("section", name_of_section(kOptions[option.option.index].section));
    write_said(json, "a", option.a);
    write_said(json, "b", option.b);
    json.end();
  }
  json.end();
}

void write_env(JsonWriter& json, const Difference& d) {
  json.key("env");
  json.begin_object();
  json.field("a_known", d.a.loaded.config.env_known);
  json.field("b_known", d.b.loaded.config.env_known);
  json.key("variables");
  json.begin_array();
  for (const VariableDifference& variable : d.env) {
    json.begin_object(Layout::Inline);
    json.field("name", variable.name);
    write_or_null(json, "a", variable.a);
    write_or_null(json, "b", variable.b);
    json.end();
  }
  json.end();
  json.end();
}

void write_values(JsonWriter& json, std::string_view key, const std::vector<ValueDifference>& values,
                  const std::optional<LayersDifference>& layers) {
  json.key(key);
  json.begin_array();
  for (const ValueDifference& value : values) {
    json.begin_object(Layout::Inline);
    json.field("name", name_of(value.option));
    write_or_null(json, "a", value.a);
    write_or_null(json, "b", value.b);
    json.end();
  }
  if (layers) {
    json.begin_object(Layout::Inline);
    json.field("name", "layers_per_stage");
    write_or_null(json, "a", layers->a);
    write_or_null(json, "b", layers->b);
    json.end();
  }
  json.end();
}

void write_family(JsonWriter& json, std::string_view key, const GroupFamily& family) {
  json.key(key);
  json.begin_object();
  json.field("count", family.count());
  json.field("size", family.size());
  json.end();
}

/// Null when groups could not be compared.
void write_groups(JsonWriter& json, const Difference& d) {
  json.key("groups");
  if (!d.groups) return json.null();
  json.begin_array();
  for (const GroupDifference& group : *d.groups) {
    json.begin_object(Layout::Inline);
    json.field("family", group.row->name);
    write_family(json, "a", group.a);
    write_family(json, "b", group.b);
    json.key("first_rank");
    group.first_rank ? json.value(*group.first_rank) : json.null();
    json.end();
  }
  json.end();
}

void write_diagnostics(JsonWriter& json, std::string_view key, const Checked& checked,
                       const std::vector<const Diagnostic*>& diagnostics) {
  json.key(key);
  json.begin_array();
  for (const Diagnostic* diagnostic : diagnostics) write_diagnostic(json, checked, *diagnostic);
  json.end();
}

}  // namespace

std::string diff_json(const Difference& d) {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  json.field("format_version", "1.0");
  json.field("different", d.any());
  write_side(json, "a", d.a);
  write_side(json, "b", d.b);
  write_options(json, d);
  write_env(json, d);
  write_values(json, "checkpoint", d.checkpoint, {});
  write_values(json, "derived", d.derived, d.layers);
  write_groups(json, d);
  json.key("diagnostics");
  json.begin_object();
  write_diagnostics(json, "only_a", d.a, d.only_a);
  write_diagnostics(json, "only_b", d.b, d.only_b);
  write_diagnostics(json, "both", d.a, d.both);
  json.end();
  json.end();
  return out;
}

}  // namespace gtp::cli
