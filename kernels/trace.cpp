#include "kernels/trace.hpp"

#include <fmt/format.h>

namespace gtp {

namespace {

/// As a JSON string, quotes included.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      out += '\\';
      out += letter;
    } else if (byte < 0x20 || byte > 0x7E) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(byte));
    } else {
      out += letter;
    }
  }
  return out += '"';
}

std::string metadata(std::string_view kind, std::int64_t process, std::size_t thread, std::string_view name) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", kind, process, thread,
                     quoted(name));
}

}  // namespace

std::size_t ChromeTrace::lane_of(const TraceSpan& span) {
  for (std::size_t index = 0; index < lanes_.size(); ++index) {
    if (lanes_[index].rank == span.rank && lanes_[index].name == span.lane) return index;
  }
  lanes_.push_back({span.rank, std::string(span.lane)});
  return lanes_.size() - 1;
}

void ChromeTrace::span(const TraceSpan& span) {
  spans_.push_back({span.rank, lane_of(span), std::string(span.operation), std::string(span.weight),
                    std::string(span.group), span.start, span.end});
}

void ChromeTrace::write(const std::function<void(std::string_view)>& sink) const {
  std::string_view separator = "\n";
  const auto item = [&](const std::string& text) {
    sink(separator);
    sink(text);
    separator = ",\n";
  };
  sink(R"({"displayTimeUnit":"ns","traceEvents":[)");
  for (std::size_t index = 0; index < lanes_.size(); ++index) {
    const Lane& lane = lanes_[index];
    item(metadata("process_name", lane.rank, index, fmt::format("rank {}", lane.rank)));
    item(metadata("thread_name", lane.rank, index, lane.name));
  }
  for (const Span& span : spans_) {
    const std::string name = span.weight.empty() ? span.operation : span.operation + " " + span.weight;
    item(fmt::format(R"({{"ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{"group":{}}}}})",
                     quoted(name), quoted(span.operation), span.rank, span.lane, span.start, span.end - span.start,
                     quoted(span.group)));
  }
  sink("\n]}\n");
}

}  // namespace gtp
