#include "tests/fuzz/harness.hpp"

#include <cstdlib>
#include <string>
#include <string_view>

#include <gtp/check.hpp>

#include "validators/edit.hpp"
#include "validators/load.hpp"

namespace {

using gtp::LoadRequest;

LoadRequest reader_request(std::string_view format, std::string text) {
  if (format == "cluster") return {.clusters = {{nullptr, gtp::Text{"fuzz", std::move(text)}}}};
  LoadRequest request{.format = gtp::find_input_format(format), .config = gtp::Text{"fuzz", std::move(text)}};
  if (!request.format) std::abort();
  return request;
}

/// The first byte chooses what the command line would: the name of the file and the target.
LoadRequest check_request(std::string text) {
  constexpr std::string_view kNames[] = {"job", "job.json", "job.yaml", "job.args", "job.sh", "job.env"};
  const auto choice = static_cast<unsigned char>(text.empty() ? '\0' : text.front());
  if (!text.empty()) text.erase(0, 1);
  LoadRequest request{.config = gtp::Text{std::string(kNames[choice % std::size(kNames)]), std::move(text)}};
  request.target = gtp::kTargets[choice / std::size(kNames) % gtp::kTargets.size()];
  return request;
}

/// A place that is not inside its source would be read out of bounds by whoever shows it.
void require_places(const gtp::Loaded& loaded, const gtp::Diagnostics& diagnostics) {
  const auto require = [&](const gtp::Place& place) {
    if (!place.known()) return;
    if (place.source >= loaded.sources.size() || place.begin > place.end) std::abort();
    if (place.begin > loaded.sources[place.source].text.size()) std::abort();
    (void)gtp::locate(loaded.sources[place.source], place.begin, place.end);
  };
  for (const gtp::Diagnostic& diagnostic : diagnostics) {
    require(diagnostic.primary.place);
    for (const gtp::Label& label : diagnostic.related) require(label.place);
  }
}

void apply_fixes(const gtp::Loaded& loaded, const gtp::Diagnostics& diagnostics) {
  for (const gtp::Diagnostic& diagnostic : diagnostics)
    for (const gtp::Fix& fix : diagnostic.fix)
      if (const auto edit = gtp::edit_for(loaded, diagnostic, fix))
        std::string(loaded.sources[0].text).replace(edit->begin, edit->end - edit->begin, edit->text);
}

}  // namespace

namespace gtp::fuzz {

void try_input(const char* format, const std::uint8_t* data, std::size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  const Loaded loaded =
      load(format == nullptr ? check_request(std::move(text)) : reader_request(format, std::move(text)));
  require_places(loaded, loaded.diagnostics);
  if (!loaded.readable) return;
  const Report report = check(loaded.config);
  require_places(loaded, report.diagnostics);
  apply_fixes(loaded, report.diagnostics);
}

}  // namespace gtp::fuzz
