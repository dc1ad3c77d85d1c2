// From checked configurations to bytes, one renderer a file. Values in, text out: nothing here prints.
#pragma once

#include <functional>
#include <string>

#include "tools/input.hpp"
#include "tools/json_writer.hpp"
#include "tools/paint.hpp"

namespace gtp::cli {

/// A report made of one text a configuration (`Tell`, which may be called on any thread) and what stands around them.
struct Renderer {
  Tell tell;
  std::function<std::string(const CheckedList&)> finish;  ///< of a list with its `texts`
};

/// What `check` says to a person: diagnostics, verdicts, and for one configuration its derived values.
[[nodiscard]] Renderer text_renderer(Paint paint);

/// Diagnostics and verdicts only, for commands whose product is something else; nothing for a configuration that is
/// valid without a warning.
[[nodiscard]] std::string render_diagnostics(const CheckedList& list, Paint paint);

/// One line a diagnostic: `file:line:column: error[GTP003] message: label`.
[[nodiscard]] Renderer concise_renderer();

/// For continuous integration: JUnit XML, GitHub workflow commands, SARIF 2.1.0. Whatever an input holds, the result is
/// well-formed.
[[nodiscard]] Renderer junit_renderer();
[[nodiscard]] Renderer github_renderer();
[[nodiscard]] std::string render_sarif(const CheckedList& list);

/// The source that a place is in, where that is a file: null for words of the command line and for no place at all.
/// Reports for programs then name the configuration, without a line.
[[nodiscard]] inline const Source* file_of(const Checked& checked, const Place& place) {
  if (!place.known()) return nullptr;
  const Source& source = checked.loaded.sources[place.source];
  return source.name.starts_with('<') && source.name != checked.file ? nullptr : &source;
}

/// The envelope of `check --format json`.
[[nodiscard]] std::string render_json(const CheckedList& list);

/// Why nothing was checked at all, for people and in the same envelope.
[[nodiscard]] std::string render_text(const CouldNotRun& failure, Paint paint);
[[nodiscard]] std::string render_json(const CouldNotRun& failure);

void write_diagnostic(JsonWriter& json, const Checked& checked, const Diagnostic& d);

/// The value of the key `derived` of every JSON output.
void write_derived(JsonWriter& json, const Report& report);

/// For commands that make something of one valid configuration: false when there is nothing to be made. Errors are
/// then written, as JSON to standard output if that is the format asked for, else as text to standard error; so are
/// warnings of a valid configuration.
[[nodiscard]] bool report_unless_valid(const CheckedList& list, const InputOptions& options);

}  // namespace gtp::cli
