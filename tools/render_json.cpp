#include <string>
#include <vector>

#include "tools/in_parallel.hpp"
#include "tools/render.hpp"

namespace gtp::cli {

namespace {

using Layout = JsonWriter::Layout;
constexpr std::string_view kFormatVersion = "1.0";

void write_position(JsonWriter& json, std::string_view name, const Position& position) {
  json.key(name);
  json.begin_object();
  json.field("line", std::int64_t{position.line});
  json.field("column", std::int64_t{position.column});
  json.end();
}

/// `option`, `label`, `file` and `range` of an object; `range` is null where the place is not in the input.
void write_label(JsonWriter& json, const Checked& checked, const Label& label) {
  json.field("option", label.option);
  json.field("label", label.text);
  const Place& place = label.place;
  const Source* source = place.known() ? &checked.loaded.sources[place.source] : nullptr;
  json.field("file", source == nullptr ? checked.file : source->name);
  json.key("range");
  if (source == nullptr) return json.null();
  const Range range = locate(*source, place.begin, place.end);
  json.begin_object(Layout::Inline);
  write_position(json, "start", range.start);
  write_position(json, "end", range.end);
  json.end();
}

void write_not_checked(JsonWriter& json, const Checked& checked) {
  json.begin_array();
  if (checked.report)
    for (const NotChecked& rule : checked.report->not_checked) {
      json.begin_object(Layout::Inline);
      json.field("code", rule.rule->code);
      json.key("needs");
      json.begin_array(Layout::Inline);
      for (const Needs needs = rule.needs(); const OptionId need : needs.span()) json.value(name_of(need));
      json.end();
      json.end();
    }
  json.end();
}

/// The target is named where it is not the one of the whole report.
void write_config(JsonWriter& json, const Checked& checked, const Target& target) {
  json.begin_object();
  json.field("file", checked.file);
  json.field("input_format", checked.input_format);
  if (checked.report && !(checked.loaded.config.target() == target))
    json.field("target", checked.loaded.config.target().name);
  json.field("verdict", to_text(checked.verdict));
  json.key("derived");
  if (checked.report) {
    write_derived(json, *checked.report);
  } else {
    json.begin_object();
    json.end();
  }
  json.key("not_checked");
  write_not_checked(json, checked);
  json.key("diagnostics");
  json.begin_array();
  for (const Diagnostic& d : checked.diagnostics) write_diagnostic(json, checked, d);
  json.end();
  json.end();
}

void begin_envelope(JsonWriter& json, const Target& target, Counts counts) {
  json.begin_object();
  json.field("format_version", kFormatVersion);
  json.field("target", target.name);
  json.field("error_count", static_cast<std::int64_t>(counts.errors));
  json.field("warning_count", static_cast<std::int64_t>(counts.warnings));
}

}  // namespace

void write_diagnostic(JsonWriter& json, const Checked& checked, const Diagnostic& d) {
  json.begin_object();
  json.field("severity", gtp::to_text(d.severity));
  json.field("phase", gtp::to_text(d.phase));
  json.field("code", d.code);
  json.field("rule", d.rule);
  json.field("message", d.message);
  write_label(json, checked, d.primary);
  json.key("related");
  json.begin_array();
  for (const Label& label : d.related) {
    json.begin_object();
    write_label(json, checked, label);
    json.end();
  }
  json.end();
  json.field("notes", d.notes);
  json.field("help", d.help);
  json.key("fix");
  json.begin_array();
  for (const Fix& fix : d.fix) {
    json.begin_object(Layout::Inline);
    json.field("option", fix.option);
    json.field("value", fix.value);
    json.end();
  }
  json.end();
  json.end();
}

std::string render_json(const CheckedList& list) {
  std::string out;
  JsonWriter json(out);
  begin_envelope(json, list.target, list.count());
  json.key("configs");
  json.begin_array();
  constexpr std::size_t kDepth = 2;  // the envelope and its array
  std::vector<std::string> configs(list.configs.size());
  in_parallel(configs.size(), [&](std::size_t i) {
    JsonWriter inner(configs[i], kDepth);
    write_config(inner, list.configs[i], list.target);
  });
  std::size_t size = out.size();
  for (const std::string& config : configs) size += config.size() + kDepth * 4;
  out.reserve(size);
  for (const std::string& config : configs) {
    json.raw();
    out += config;
  }
  json.end();
  json.end();
  return out;
}

std::string render_json(const CouldNotRun& failure) {
  std::string out;
  JsonWriter json(out);
  begin_envelope(json, kDefaultTarget, {.errors = 1});
  json.key("configs");
  json.begin_array();
  json.end();
  json.key("diagnostics");
  json.begin_array();
  Diagnostic usage;
  usage.rule = "usage";
  usage.message = failure.message;
  usage.help = failure.help;
  write_diagnostic(json, Checked(kDefaultTarget), usage);
  json.end();
  json.end();
  return out;
}

void write_derived(JsonWriter& json, const Report& report) {
  const Derivation& derivation = report.derivation;
  json.begin_object();
  for (const OptionId option : kDerivedNames)
    if (derivation.facts.has(option)) json.field(name_of(option), *derivation.facts.find(option));
  if (derivation.layers_per_stage) json.field("layers_per_stage", *derivation.layers_per_stage);
  json.end();
}

}  // namespace gtp::cli
