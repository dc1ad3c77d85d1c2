#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "tools/diff.hpp"
#include "tools/explain.hpp"
#include "tools/utf8.hpp"

namespace gtp::cli {

namespace {

constexpr std::size_t kWidestColumn = 48;

/// A table of texts that may hold anything; its first row is its head.
class Table {
 public:
  using Row = std::array<std::string, 4>;

  void add(std::string name, std::string a, std::string b, std::string more = {}) {
    rows_.push_back({printable(name), printable(a), printable(b), printable(more)});
  }

  void append(std::string& out) const {
    std::array<std::size_t, 3> widths{};
    for (const Row& row : rows_)
      for (std::size_t i = 0; i < widths.size(); ++i)
        widths[i] = std::max(widths[i], std::min(width_of(row[i]), kWidestColumn));
    for (const Row& row : rows_) {
      std::string line = "   ";
      for (std::size_t i = 0; i < row.size(); ++i) {
        line += " " + row[i];
        if (i < widths.size() && width_of(row[i]) < widths[i]) line.append(widths[i] - width_of(row[i]), ' ');
        line += " ";
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + '\n';
    }
  }

 private:
  std::vector<Row> rows_{{"", "A", "B", ""}};
};

std::string text_of(const Value* value) { return value == nullptr ? "not known" : gtp::to_text(*value); }

std::string text_of(const Said& said) {
  switch (said.how) {
    case Said::How::Given:
      return gtp::to_text(*said.value);
    case Said::How::Default:
      return fmt::format("{} (default)", gtp::to_text(*said.value));
    case Said::How::Variable:
      return "a variable";
    case Said::How::Unknown:
      return "not said";
    case Said::How::NoOption:
      return "no such option";
  }
  return "";
}

std::string text_of(const LayersPerStage* layers) {
  if (layers == nullptr) return "not known";
  std::vector<std::string> stages;
  for (const auto& chunks : *layers) stages.push_back(fmt::format("{}", fmt::join(chunks, "+")));
  return fmt::format("[{}]", fmt::join(stages, ", "));
}

std::string plural(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

class DiffText {
 public:
  DiffText(const Difference& difference, Paint paint) : d_(difference), paint_(paint) {}

  std::string make() {
    append_head("A", d_.a);
    append_head("B", d_.b);
    append_options();
    append_env();
    append_values("checkpoint to be loaded", d_.checkpoint, {});
    append_values("derived values", d_.derived, d_.layers);
    append_groups();
    append_diagnostics();
    if (!d_.any()) out_ += "\nno difference\n";
    return std::move(out_);
  }

 private:
  void append_head(std::string_view side, const Checked& checked) {
    const Counts counts = count(checked.diagnostics);
    const bool valid = checked.verdict == Verdict::Valid;
    std::string verdict(to_text(checked.verdict));
    if (counts.errors > 0) verdict += fmt::format(", {}", plural(counts.errors, "error"));
    if (counts.warnings > 0) verdict += fmt::format(", {}", plural(counts.warnings, "warning"));
    out_ +=
        fmt::format("{}: {} ({}; {}; {})\n", paint_(Ink::Strong, side), printable(checked.file), checked.input_format,
                    checked.loaded.config.target().name, paint_(valid ? Ink::Good : Ink::Error, verdict));
  }

  void append_title(std::string_view title) { out_ += fmt::format("\n{}\n", paint_(Ink::Strong, title)); }

  void append_options() {
    if (d_.options.empty()) return;
    append_title("options");
    for (std::size_t at = 0; at < d_.options.size();) {
      const Section section = kOptions[d_.options[at].option.index].section;
      out_ += fmt::format("  {}\n", paint_(Ink::Frame, name_of_section(section)));
      Table table;
      for (; at < d_.options.size() && kOptions[d_.options[at].option.index].section == section; ++at)
        table.add(std::string(name_of(d_.options[at].option)), text_of(d_.options[at].a), text_of(d_.options[at].b));
      table.append(out_);
    }
  }

  void append_env() {
    if (d_.env.empty() && !d_.env_known_differs) return;
    append_title("environment");
    if (d_.env_known_differs)
      out_ += fmt::format("  {} says nothing of its environment\n", d_.a.loaded.config.env_known ? "B" : "A");
    if (d_.env.empty()) return;
    const auto text = [](const std::string* value, const Checked& checked) {
      return value != nullptr ? *value : checked.loaded.config.env_known ? "not set" : "not known";
    };
    Table table;
    for (const VariableDifference& v : d_.env) table.add(v.name, text(v.a, d_.a), text(v.b, d_.b));
    table.append(out_);
  }

  void append_values(std::string_view title, const std::vector<ValueDifference>& values,
                     const std::optional<LayersDifference>& layers) {
    if (values.empty() && !layers) return;
    append_title(title);
    Table table;
    for (const ValueDifference& v : values) table.add(std::string(name_of(v.option)), text_of(v.a), text_of(v.b));
    if (layers) table.add("layers_per_stage", text_of(layers->a), text_of(layers->b));
    table.append(out_);
  }

  /// The members of the group that a rank is in.
  static std::string members_text(const GroupFamily& family, std::int64_t rank) {
    constexpr std::int64_t kMostMembers = 6;
    const auto place = family.group_of(rank);
    if (!place) return "none";
    const GroupView group = *family.group(place->group);
    std::vector<std::string> members;
    for (const std::int64_t member : group) {
      if (static_cast<std::int64_t>(members.size()) == kMostMembers) break;
      members.push_back(fmt::format("{}", member));
    }
    if (group.size() > kMostMembers) members.emplace_back("...");
    return fmt::format("[{}]", fmt::join(members, ","));
  }

  void append_groups() {
    if (!d_.groups) {
      append_title("process groups");
      out_ += "  not compared: ";
      out_ += d_.a.verdict == Verdict::Valid && d_.b.verdict == Verdict::Valid ? "the sizes of both must be known\n"
                                                                               : "an invalid configuration has none\n";
      return;
    }
    if (d_.groups->empty()) return;
    append_title("process groups");
    const auto shape = [](const GroupFamily& f) { return fmt::format("{} of {}", f.count(), f.size()); };
    Table table;
    for (const GroupDifference& g : *d_.groups) {
      const std::string first = !g.first_rank
                                    ? std::string("first difference is beyond 2^20 members")
                                    : fmt::format("rank {}: {} | {}", *g.first_rank, members_text(g.a, *g.first_rank),
                                                  members_text(g.b, *g.first_rank));
      table.add(std::string(g.row->name), shape(g.a), shape(g.b), first);
    }
    table.append(out_);
    if (const std::size_t same = kGroupFamilies.size() - d_.groups->size(); same > 0)
      out_ += fmt::format("  the other {} of {} families are the same\n", same, kGroupFamilies.size());
  }

  void append_diagnostic(char sign, const Diagnostic& d) {
    const Ink ink = d.severity == Severity::Error     ? Ink::Error
                    : d.severity == Severity::Warning ? Ink::Warning
                                                      : Ink::Note;
    out_ += fmt::format("  {} {} {}", sign, paint_(ink, fmt::format("{}[{}]", gtp::to_text(d.severity), d.code)),
                        printable(d.message));
    if (!d.primary.option.empty()) out_ += fmt::format(" ({})", printable(d.primary.option));
    if (!d.primary.text.empty()) out_ += fmt::format(": {}", printable(d.primary.text));
    out_ += '\n';
  }

  /// What both have is listed when it is an error: otherwise nobody would see why there are no groups.
  void append_diagnostics() {
    const auto is_error = [](const Diagnostic* d) { return d->severity == Severity::Error; };
    if (d_.only_a.empty() && d_.only_b.empty() && std::ranges::none_of(d_.both, is_error)) return;
    append_title("diagnostics (- of A alone, + of B alone)");
    for (const Diagnostic* d : d_.both)
      if (is_error(d)) append_diagnostic(' ', *d);
    for (const Diagnostic* d : d_.only_a) append_diagnostic('-', *d);
    for (const Diagnostic* d : d_.only_b) append_diagnostic('+', *d);
  }

  const Difference& d_;
  Paint paint_;
  std::string out_;
};

}  // namespace

std::string diff_text(const Difference& difference, Paint paint) { return DiffText(difference, paint).make(); }

}  // namespace gtp::cli
