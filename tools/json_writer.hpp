// Writes JSON in the order of the calls, two spaces a level. Every text comes out as valid UTF-8, and every number as
// JSON knows it. It builds nothing: whoever streams takes the text away between calls.
#pragma once

#include <gtp/value.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gtp::cli {

class JsonWriter {
 public:
  /// Inline containers, and all within them, stay on one line.
  enum class Layout : std::uint8_t { Lines, Inline };

  explicit JsonWriter(std::string& out) : out_(&out) {}
  /// Writes one value that another writer has a place for (`raw`) inside `depth` containers.
  JsonWriter(std::string& out, std::size_t depth) : out_(&out), depth_(depth) {}

  void begin_object(Layout layout = Layout::Lines) { begin('{', '}', layout); }
  void begin_array(Layout layout = Layout::Lines) { begin('[', ']', layout); }
  /// Ends the innermost container; after the outermost one comes a line end.
  void end();

  void key(std::string_view name);
  void value(std::string_view text);
  void value(const char* text) { value(std::string_view(text)); }
  void value(const std::string& text) { value(std::string_view(text)); }
  void value(bool flag);
  void value(std::int64_t number);
  /// Infinities and NaN, which JSON has no numbers for, are the texts `inf`, `-inf` and `nan`.
  void value(double number);
  void value(const Value& any);
  void null();
  template <class T>
  void value(const std::vector<T>& items) {
    begin_array(Layout::Inline);
    for (const T& item : items) value(item);
    end();
  }

  template <class T>
  void field(std::string_view name, const T& item) {
    key(name);
    value(item);
  }

  /// The place of one value that the caller appends to the text itself.
  void raw() { separate(); }

 private:
  struct Level {
    char close;
    Layout layout;
    bool empty = true;
  };

  void begin(char open, char close, Layout layout);
  void separate();
  void new_line();
  void put(std::string_view text);

  std::string* out_;
  std::size_t depth_ = 0;
  std::vector<Level> levels_;
  bool after_key_ = false;
};

}  // namespace gtp::cli
