#include "tools/mend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <dtl/dtl.hpp>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "tools/file.hpp"
#include "validators/edit.hpp"

namespace gtp::cli {

namespace {

/// One offer: a rule and the option it blames.
using Offer = std::pair<std::string, std::string>;

Offer offer_of(const Diagnostic& d) { return {std::string(d.code), d.primary.option}; }

std::size_t problems(const Checked& checked) {
  const Counts counts = count(checked.diagnostics);
  return counts.errors + counts.warnings;
}

bool reports(const Checked& checked, const Offer& offer) {
  return std::ranges::any_of(checked.diagnostics, [&](const Diagnostic& d) { return offer_of(d) == offer; });
}

/// The text with all edits of one diagnostic, or nothing when one of them is not to be had or two overlap.
std::optional<std::string> edited(const Checked& checked, const Diagnostic& d) {
  std::vector<Edit> edits;
  for (const Fix& fix : d.fix) {
    const std::optional<Edit> edit = edit_for(checked.loaded, d, fix);
    if (!edit) return std::nullopt;
    edits.push_back(*edit);
  }
  std::ranges::sort(edits, [](const Edit& a, const Edit& b) { return a.begin > b.begin; });
  std::string text = checked.loaded.sources[0].text;
  std::size_t behind = text.size();
  for (const Edit& edit : edits) {
    if (edit.end > behind) return std::nullopt;
    text.replace(edit.begin, edit.end - edit.begin, edit.text);
    behind = edit.begin;
  }
  return text;
}

/// Mends one file, an offer at a time: each is read back and kept only if it does what it says.
class FileMender {
 public:
  FileMender(const InputOptions& options, const Project* project, const Checked& start, Mending& out)
      : options_(options), project_(project), path_(start.file), current_(&start), out_(out) {}

  void mend() {
    if (!current_->loaded.readable || current_->loaded.sources.size() == 0) return;
    const std::string before = current_->loaded.sources[0].text;
    while (take_one()) ++out_.fixes;
    for (const Offer& offer : refused_)
      if (reports(*current_, offer)) out_.left.push_back({path_, offer.first, offer.second});
    const std::string& after = current_->loaded.sources[0].text;
    if (after != before) out_.files.push_back({path_, before, after});
  }

 private:
  bool take_one() {
    for (const Diagnostic& d : current_->diagnostics) {
      if (d.fix.empty() || refused_.contains(offer_of(d))) continue;
      const std::optional<std::string> text = edited(*current_, d);
      auto next = text ? check_text(options_, project_, path_, *text) : nullptr;
      if (next && next->loaded.readable && !reports(*next, offer_of(d)) && problems(*next) < problems(*current_)) {
        current_ = next.get();
        kept_ = std::move(next);
        return true;
      }
      refused_.insert(offer_of(d));
    }
    return false;
  }

  const InputOptions& options_;
  const Project* project_;
  std::string path_;
  const Checked* current_;
  std::unique_ptr<Checked> kept_;
  std::set<Offer> refused_;
  Mending& out_;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

std::string Mending::summary(bool dry_run) const {
  std::string text;
  if (fixes > 0)
    text += fmt::format("{} {} in {} {}\n", dry_run ? "would mend" : "mended",
                        fixes == 1 ? "1 problem" : fmt::format("{} problems", fixes), files.size(),
                        files.size() == 1 ? "file" : "files");
  for (const LeftFix& fix : left)
    text += fmt::format("{}: the fix of {} (`{}`) cannot be written into this file\n", fix.file, fix.code, fix.option);
  return text;
}

std::string Mending::diff() const {
  std::ostringstream out;
  for (const MendedFile& file : files) {
    dtl::Diff<std::string> diff(lines_of(file.before), lines_of(file.after));
    diff.onHuge();
    diff.compose();
    diff.composeUnifiedHunks();
    out << "--- " << file.path << "\n+++ " << file.path << '\n';
    diff.printUnifiedFormat(out);
  }
  return out.str();
}

void Mending::write() const {
  for (const MendedFile& file : files) replace_file(file.path, file.before, file.after);
}

Mending mend(const InputOptions& options, const Project* project, const CheckedList& list) {
  if (options.arguments || std::ranges::find(options.configs, "-") != options.configs.end())
    throw CouldNotRun{"--fix needs files", "standard input and arguments have no place to write a fix to"};
  Mending mending;
  for (const Checked& checked : list.configs) FileMender(options, project, checked, mending).mend();
  return mending;
}

}  // namespace gtp::cli
