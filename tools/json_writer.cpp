#include "tools/json_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <variant>

#include "tools/utf8.hpp"

namespace gtp::cli {

namespace {

/// Bytes at the beginning that stand in JSON as they are: ASCII without controls, quotes and backslashes.
std::size_t plain_size(std::string_view text) {
  const auto plain = [](char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; };
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), plain) - text.begin());
}

}  // namespace

void JsonWriter::begin(char open, char close, Layout layout) {
  separate();
  if (!levels_.empty() && levels_.back().layout == Layout::Inline) layout = Layout::Inline;
  out_->push_back(open);
  levels_.push_back({close, layout});
}

void JsonWriter::end() {
  const Level level = levels_.back();
  levels_.pop_back();
  if (!level.empty && level.layout == Layout::Lines) new_line();
  out_->push_back(level.close);
  if (levels_.empty() && depth_ == 0) out_->push_back('\n');
}

void JsonWriter::separate() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (levels_.empty()) return;
  Level& level = levels_.back();
  if (!level.empty) out_->append(level.layout == Layout::Inline ? ", " : ",");
  if (level.layout == Layout::Lines) new_line();
  level.empty = false;
}

void JsonWriter::new_line() {
  out_->push_back('\n');
  out_->append(2 * (depth_ + levels_.size()), ' ');
}

void JsonWriter::key(std::string_view name) {
  separate();
  put(name);
  out_->append(": ");
  after_key_ = true;
}

void JsonWriter::value(std::string_view text) {
  separate();
  put(text);
}

void JsonWriter::value(bool flag) {
  separate();
  out_->append(flag ? "true" : "false");
}

void JsonWriter::value(std::int64_t number) {
  separate();
  fmt::format_to(std::back_inserter(*out_), "{}", number);
}

void JsonWriter::value(double number) {
  if (!std::isfinite(number)) return value(std::string_view(std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf"));
  separate();
  const std::string text = fmt::format("{}", number);
  out_->append(text);
  if (text.find_first_of(".e") == std::string::npos) out_->append(".0");
}

void JsonWriter::null() {
  separate();
  out_->append("null");
}

void JsonWriter::value(const Value& any) {
  struct Write {
    JsonWriter& json;
    void operator()(std::monostate) const { json.null(); }
    void operator()(const std::string& text) const { json.value(std::string_view(text)); }
    void operator()(bool flag) const { json.value(flag); }
    void operator()(std::int64_t number) const { json.value(number); }
    void operator()(double number) const { json.value(number); }
    void operator()(const IntList& items) const { json.value(items); }
    void operator()(const FloatList& items) const { json.value(items); }
    void operator()(const StringList& items) const { json.value(items); }
  };
  std::visit(Write{*this}, any);
}

void JsonWriter::put(std::string_view text) {
  out_->push_back('"');
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t plain = plain_size(text.substr(at));
    out_->append(text.substr(at, plain));
    at += plain;
    if (at == text.size()) break;
    const CodePoint point = decode(text, at);
    at += point.size;
    if (point.value == '"' || point.value == '\\') {
      out_->push_back('\\');
      out_->push_back(static_cast<char>(point.value));
    } else if (point.value == '\n') {
      out_->append("\\n");
    } else if (point.value < 0x20 || point.value == 0x7F) {
      fmt::format_to(std::back_inserter(*out_), "\\u{:04x}", static_cast<unsigned>(point.value));
    } else {
      append_utf8(point.value, *out_);
    }
  }
  out_->push_back('"');
}

}  // namespace gtp::cli
