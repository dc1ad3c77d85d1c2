#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include <gtp/rules.hpp>

#include "tools/file.hpp"
#include "tools/lacking.hpp"
#include "tools/render.hpp"
#include "tools/snippet.hpp"
#include "tools/utf8.hpp"

namespace gtp::cli {

namespace {

Ink ink_of(Severity severity) {
  switch (severity) {
    case Severity::Error:
      return Ink::Error;
    case Severity::Warning:
      return Ink::Warning;
    case Severity::Note:
      return Ink::Note;
  }
  return Ink::Strong;
}

std::string_view notice_of(Phase phase) {
  switch (phase) {
    case Phase::Startup:
      return "startup (upstream would notice before training starts)";
    case Phase::FirstStep:
      return "first-step (upstream would start, and notice in the first step)";
    case Phase::Later:
      return "later (upstream would notice at a schedule entry, a resume or a save)";
    case Phase::Silent:
      return "silent (upstream would never notice)";
  }
  return "";
}

/// What only gtplan minds, such as a missing file, has no moment upstream.
bool concerns_upstream(const Diagnostic& d) {
  const Rule* rule = find_rule(d.code);
  return d.phase != Phase::Startup || rule == nullptr || !rule->source.empty();
}

/// One diagnostic in Rust's shape.
class DiagnosticText {
 public:
  DiagnosticText(const Checked& checked, const Diagnostic& d, Paint paint, std::string& out)
      : checked_(checked), d_(d), paint_(paint), out_(out) {
    add_mark(d.primary, true);
    for (const Label& label : d.related) add_mark(label, false);
    for (const Group& group : groups_) gutter_ = std::max(gutter_, gutter_of(group.marks));
  }

  void append() {
    out_ += paint_(ink_of(d_.severity), fmt::format("{}[{}]", gtp::to_text(d_.severity), d_.code));
    out_ += paint_(Ink::Strong, ": " + printable(d_.message)) + '\n';
    if (groups_.empty()) append_arrow(printable(checked_.file));
    for (const Group& group : groups_) {
      const Position& at = group.start;
      append_arrow(fmt::format("{}:{}:{}", printable(group.source->name), at.line, at.column));
      append_snippet(*group.source, group.marks, gutter_, ink_of(d_.severity), paint_, out_);
    }
    append_remarks();
  }

 private:
  /// The marks in one source, and the place that its heading names.
  struct Group {
    std::uint32_t index;
    const Source* source;
    Position start;
    std::vector<Mark> marks;
  };

  void add_mark(const Label& label, bool primary) {
    if (!label.place.known()) return;
    const Place& place = label.place;
    const Source& source = checked_.loaded.sources[place.source];
    const Position start = locate(source, place.begin, place.end).start;
    const auto same =
        std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.index == place.source; });
    Group& group = same != groups_.end() ? *same : groups_.emplace_back(Group{place.source, &source, start, {}});
    group.marks.push_back({place.begin, place.end, start.line, primary, printable(label.text)});
  }

  void append_arrow(const std::string& where) {
    out_ += fmt::format("{:{}}{} {}\n", "", gutter_, paint_(Ink::Frame, "-->"), where);
  }

  void append_remark(std::string_view kind, std::string_view text) {
    out_ += fmt::format("{:{}} {} {}: {}\n", "", gutter_, paint_(Ink::Frame, "="), paint_(Ink::Strong, kind),
                        printable(text));
  }

  /// The value that an option has although no input gives it.
  std::string value_of(const Label& label) const {
    const std::optional<OptionId> option = find_option(label.option);
    const Value* value = option && checked_.report ? checked_.report->derivation.facts.find(*option) : nullptr;
    return value == nullptr ? std::string() : fmt::format(" = {}", gtp::to_text(*value));
  }

  void append_label_without_place(std::string_view kind, const Label& label) {
    if (label.place.known() || (label.option.empty() && label.text.empty())) return;
    if (label.option.empty()) return append_remark(kind, label.text);
    const std::string option = fmt::format("`{}`{}", label.option, value_of(label));
    append_remark(kind, label.text.empty() ? option : fmt::format("{}: {}", option, label.text));
  }

  void append_remarks() {
    if (!groups_.empty()) out_ += fmt::format("{:{}} {}\n", "", gutter_, paint_(Ink::Frame, "|"));
    append_label_without_place(d_.primary.option.empty() ? "note" : "where", d_.primary);
    for (const Label& label : d_.related) append_label_without_place("note", label);
    for (const std::string& note : d_.notes) append_remark("note", note);
    if (!d_.help.empty()) append_remark("help", d_.help);
    for (const Fix& fix : d_.fix)
      append_remark("fix", fmt::format("set `{}` to {}", fix.option, gtp::to_text(fix.value)));
    if (concerns_upstream(d_)) append_remark("phase", notice_of(d_.phase));
  }

  const Checked& checked_;
  const Diagnostic& d_;
  Paint paint_;
  std::string& out_;
  std::vector<Group> groups_;
  std::size_t gutter_ = 3;
};

std::string plural(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string verdict_line(const Checked& checked, Paint paint) {
  const Ink ink = checked.verdict == Verdict::Valid ? Ink::Good : Ink::Error;
  std::string line = fmt::format("{}: {}", printable(checked.file), paint(ink, to_text(checked.verdict)));
  const Counts counts = count(checked.diagnostics);
  std::vector<std::string> parts;
  if (counts.errors > 0) parts.push_back(plural(counts.errors, "error"));
  if (counts.warnings > 0) parts.push_back(plural(counts.warnings, "warning"));
  if (!parts.empty()) line += fmt::format(" ({})", fmt::join(parts, ", "));
  return line + '\n';
}

void append_diagnostics(const Checked& checked, Paint paint, std::string& out) {
  for (const Diagnostic& d : checked.diagnostics) {
    DiagnosticText(checked, d, paint, out).append();
    out += '\n';
  }
}

/// Layers of each stage with runs of equal stages drawn together: `8 x4, 7 x12`.
std::string layers_text(const LayersPerStage& layers) {
  constexpr std::size_t kMostRuns = 12;
  std::vector<std::string> runs;
  for (std::size_t at = 0, next = 0; at < layers.size() && runs.size() <= kMostRuns; at = next) {
    while (next < layers.size() && layers[next] == layers[at]) ++next;
    const std::string chunks = fmt::format("{}", fmt::join(layers[at], "+"));
    runs.push_back(next - at == 1 ? chunks : fmt::format("{} x{}", chunks, next - at));
  }
  if (runs.size() > kMostRuns) runs.back() = "...";
  return fmt::format("{}", fmt::join(runs, ", "));
}

void append_derived(const Derivation& derivation, std::string& out) {
  std::vector<std::pair<std::string_view, std::string>> rows;
  for (const OptionId option : kDerivedNames)
    if (derivation.facts.has(option)) rows.emplace_back(name_of(option), gtp::to_text(*derivation.facts.find(option)));
  if (derivation.layers_per_stage) rows.emplace_back("layers_per_stage", layers_text(*derivation.layers_per_stage));
  std::size_t width = 0;
  for (const auto& [name, value] : rows) width = std::max(width, name.size());
  for (const auto& [name, value] : rows) out += fmt::format("  {:{}}  {}\n", name, width, printable(value));
}

void append_not_checked(const Report& report, Paint paint, std::string& out) {
  if (report.not_checked.empty()) return;
  constexpr std::size_t kMostNames = 5;
  std::vector<std::string> names;
  for (const Lack& lack : lacking(report))
    if (kOptions[lack.option.index].section != Section::Derived)
      names.push_back(fmt::format("{} ({})", name_of(lack.option), lack.rules));
  if (names.size() > kMostNames) {
    const std::string rest = fmt::format("{} more", names.size() - kMostNames);
    names.resize(kMostNames);
    names.push_back(rest);
  }
  std::string line = fmt::format("  not checked: {}", plural(report.not_checked.size(), "rule"));
  if (!names.empty()) line += fmt::format(", for lack of {}", fmt::join(names, ", "));
  out += paint(Ink::Faint, line) + '\n';
}

void append_totals(const CheckedList& list, std::string& out) {
  std::array<std::size_t, 3> totals{};
  for (const Checked& checked : list.configs) ++totals[static_cast<std::size_t>(checked.verdict)];
  std::vector<std::string> parts;
  for (const Verdict verdict : {Verdict::Valid, Verdict::Invalid, Verdict::Unreadable})
    if (const std::size_t n = totals[static_cast<std::size_t>(verdict)]; n > 0)
      parts.push_back(fmt::format("{} {}", n, to_text(verdict)));
  out += fmt::format("{}: {}\n", plural(list.configs.size(), "configuration"), fmt::join(parts, ", "));
}

}  // namespace

Renderer text_renderer(Paint paint) {
  const auto tell = [paint](const Checked& checked, bool alone) {
    std::string text;
    append_diagnostics(checked, paint, text);
    text += verdict_line(checked, paint);
    if (!checked.report || !alone) return text;
    if (checked.verdict == Verdict::Valid) append_derived(checked.report->derivation, text);
    append_not_checked(*checked.report, paint, text);
    return text;
  };
  const auto finish = [paint](const CheckedList& list) {
    std::string out;
    for (std::size_t i = 0; i < list.texts.size(); ++i) {
      if (i > 0 && !list.configs[i].diagnostics.empty()) out += '\n';
      out += list.texts[i];
    }
    if (list.configs.size() != 1) append_totals(list, out);
    out += paint(Ink::Faint, fmt::format("  checked for {} ({}); GTP is experimental upstream", list.target.name,
                                         list.target.date));
    return out + '\n';
  };
  return {tell, finish};
}

std::string render_diagnostics(const CheckedList& list, Paint paint) {
  std::string out;
  for (const Checked& checked : list.configs) {
    const bool valid = checked.verdict == Verdict::Valid;
    if (valid && count(checked.diagnostics).warnings == 0) continue;
    if (!out.empty() && !checked.diagnostics.empty()) out += '\n';
    append_diagnostics(checked, paint, out);
    out += verdict_line(checked, paint);
  }
  return out;
}

std::string render_text(const CouldNotRun& failure, Paint paint) {
  std::string out = paint(Ink::Error, "error") + paint(Ink::Strong, ": " + printable(failure.message)) + '\n';
  if (!failure.help.empty())
    out += fmt::format("  {} {}: {}\n", paint(Ink::Frame, "="), paint(Ink::Strong, "help"), printable(failure.help));
  return out;
}

bool report_unless_valid(const CheckedList& list, const InputOptions& options) {
  const bool valid = list.exit() == Exit::Valid;
  if (!valid && options.format == "json") {
    Output output({});
    output.write(render_json(list));
    output.finish();
  } else {
    write_error(render_diagnostics(list, Paint(wants_color(options.color, ::isatty(STDERR_FILENO) == 1))));
  }
  return valid;
}

}  // namespace gtp::cli
