// SARIF 2.1.0, as code-scanning services read it: every rule that was violated, and a result a diagnostic.
// https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/sarif-v2.1.0-errata01-os-complete.html
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtp/rules.hpp>

#include "tools/render.hpp"
#include "validators/edit.hpp"

namespace gtp::cli {

namespace {

constexpr std::string_view kSchema =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";
constexpr std::string_view kRoot = "%SRCROOT%";

std::string_view level_of(Severity severity) {
  switch (severity) {
    case Severity::Error:
      return "error";
    case Severity::Warning:
      return "warning";
    case Severity::Note:
      return "note";
  }
  return "";
}

/// A path as a URI reference (RFC 3986): bytes that are not unreserved are percent-encoded.
std::string uri_of(std::string_view path) {
  std::string out = path.starts_with('/') ? "file://" : "";
  for (const char letter : path) {
    const bool plain = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                       (letter >= '0' && letter <= '9') ||
                       std::string_view("-._~/").find(letter) != std::string_view::npos;
    if (plain) {
      out += letter;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(letter));
    }
  }
  return out;
}

/// Survives edits elsewhere in the file: what is wrong, with which option, in a line of which text.
std::string fingerprint_of(const Checked& checked, const Diagnostic& d) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;  // FNV-1a
  const auto mix = [&](std::string_view text) {
    for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3ULL;
    hash = (hash ^ 0xFFU) * 0x100000001B3ULL;
  };
  mix(d.code);
  mix(d.primary.option);
  mix(checked.file);
  if (d.primary.place.known()) {
    const Source& source = checked.loaded.sources[d.primary.place.source];
    mix(line_text(source, locate(source, d.primary.place.begin, d.primary.place.end).start.line));
  }
  return fmt::format("{:016x}", hash);
}

void write_text(JsonWriter& json, std::string_view name, std::string_view text) {
  json.key(name);
  json.begin_object(JsonWriter::Layout::Inline);
  json.field("text", text);
  json.end();
}

class Sarif {
 public:
  Sarif(const CheckedList& list, std::string& out) : list_(list), json_(out) {}

  void write() {
    collect_rules();
    json_.begin_object();
    json_.field("$schema", kSchema);
    json_.field("version", "2.1.0");
    json_.key("runs");
    json_.begin_array();
    write_run();
    json_.end();
    json_.end();
  }

 private:
  void collect_rules() {
    for (const Rule* rule : all_rules()) {
      const auto violates = [&](const Diagnostic& d) { return d.code == rule->code; };
      if (std::ranges::any_of(list_.configs, [&](const Checked& checked) {
            return std::ranges::any_of(checked.diagnostics, violates);
          }))
        rules_.push_back(rule);
    }
  }

  void write_run() {
    json_.begin_object();
    json_.key("tool");
    json_.begin_object();
    json_.key("driver");
    json_.begin_object();
    json_.field("name", "gtplan");
    json_.field("version", GTPLAN_VERSION);
    json_.key("rules");
    json_.begin_array();
    for (const Rule* rule : rules_) write_rule(*rule);
    json_.end();
    json_.end();
    json_.end();
    json_.field("columnKind", "unicodeCodePoints");
    json_.key("properties");
    json_.begin_object(JsonWriter::Layout::Inline);
    json_.field("target", list_.target.name);
    json_.end();
    json_.key("results");
    json_.begin_array();
    for (const Checked& checked : list_.configs)
      for (const Diagnostic& d : checked.diagnostics) write_result(checked, d);
    json_.end();
    json_.end();
  }

  void write_rule(const Rule& rule) {
    json_.begin_object();
    json_.field("id", rule.code);
    json_.field("name", rule.id);
    write_text(json_, "shortDescription", rule.message);
    write_text(json_, "fullDescription", rule.why);
    write_text(json_, "help", rule.help);
    json_.key("defaultConfiguration");
    json_.begin_object(JsonWriter::Layout::Inline);
    json_.field("level", level_of(rule.severity));
    json_.end();
    json_.key("properties");
    json_.begin_object(JsonWriter::Layout::Inline);
    json_.field("phase", gtp::to_text(rule.phase));
    json_.field("upstream", rule.source);
    json_.end();
    json_.end();
  }

  void write_result(const Checked& checked, const Diagnostic& d) {
    json_.begin_object();
    json_.field("ruleId", d.code);
    const auto rule = std::ranges::find_if(rules_, [&](const Rule* each) { return each->code == d.code; });
    if (rule != rules_.end()) json_.field("ruleIndex", std::int64_t{rule - rules_.begin()});
    json_.field("level", level_of(d.severity));
    std::string text = d.message;
    if (!d.primary.text.empty()) text += ": " + d.primary.text;
    for (const std::string& note : d.notes) text += "\n" + note;
    if (!d.help.empty()) text += "\nhelp: " + d.help;
    write_text(json_, "message", text);
    json_.key("locations");
    json_.begin_array();
    write_location(checked, d.primary, false);
    json_.end();
    if (!d.related.empty()) {
      json_.key("relatedLocations");
      json_.begin_array();
      for (const Label& label : d.related) write_location(checked, label, true);
      json_.end();
    }
    write_fix(checked, d);
    json_.key("partialFingerprints");
    json_.begin_object(JsonWriter::Layout::Inline);
    json_.field("gtplanDiagnostic/v1", fingerprint_of(checked, d));
    json_.end();
    json_.key("properties");
    json_.begin_object(JsonWriter::Layout::Inline);
    json_.field("phase", gtp::to_text(d.phase));
    json_.field("option", d.primary.option);
    json_.end();
    json_.end();
  }

  void write_artifact(std::string_view file) {
    json_.key("artifactLocation");
    json_.begin_object(JsonWriter::Layout::Inline);
    json_.field("uri", uri_of(file));
    if (!file.starts_with('/')) json_.field("uriBaseId", kRoot);
    json_.end();
  }

  void write_region(std::string_view name, const Range& range) {
    json_.key(name);
    json_.begin_object(JsonWriter::Layout::Inline);
    json_.field("startLine", std::int64_t{range.start.line});
    json_.field("startColumn", std::int64_t{range.start.column});
    json_.field("endLine", std::int64_t{range.end.line});
    json_.field("endColumn", std::int64_t{range.end.column});
    json_.end();
  }

  /// The edits that `check --fix` would make, where the file has a place for all of them.
  void write_fix(const Checked& checked, const Diagnostic& d) {
    if (d.fix.empty() || checked.file.starts_with('<')) return;
    std::vector<Edit> edits;
    for (const Fix& fix : d.fix)
      if (const auto edit = edit_for(checked.loaded, d, fix)) edits.push_back(*edit);
    if (edits.empty() || edits.size() != d.fix.size()) return;
    const Source& source = checked.loaded.sources[0];
    json_.key("fixes");
    json_.begin_array();
    json_.begin_object();
    write_text(json_, "description", d.help);
    json_.key("artifactChanges");
    json_.begin_array();
    json_.begin_object();
    write_artifact(source.name);
    json_.key("replacements");
    json_.begin_array();
    for (const Edit& edit : edits) {
      json_.begin_object();
      write_region("deletedRegion", locate(source, edit.begin, edit.end));
      write_text(json_, "insertedContent", edit.text);
      json_.end();
    }
    json_.end();
    json_.end();
    json_.end();
    json_.end();
    json_.end();
  }

  void write_location(const Checked& checked, const Label& label, bool with_text) {
    const Source* source = file_of(checked, label.place);
    const std::string_view file = source == nullptr ? std::string_view(checked.file) : std::string_view(source->name);
    json_.begin_object();
    json_.key("physicalLocation");
    json_.begin_object();
    write_artifact(file);
    if (source != nullptr) write_region("region", locate(*source, label.place.begin, label.place.end));
    json_.end();
    if (with_text) write_text(json_, "message", label.text.empty() ? label.option : label.text);
    json_.end();
  }

  const CheckedList& list_;
  JsonWriter json_;
  std::vector<const Rule*> rules_;
};

}  // namespace

std::string render_sarif(const CheckedList& list) {
  std::string out;
  Sarif(list, out).write();
  return out;
}

}  // namespace gtp::cli
