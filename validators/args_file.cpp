#include "validators/args_file.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "validators/shell_quotes.hpp"

namespace gtp::readers {

namespace {

constexpr std::string_view kSpaces = " \t\n\r\f";

class Splitter {
 public:
  Splitter(std::string_view text, std::uint32_t source, Diagnostics& out) : text_(text), source_(source), out_(out) {
    if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
  }

  std::optional<std::vector<Word>> split() {
    std::vector<Word> words;
    for (skip_between(); at_ < text_.size(); skip_between()) {
      const std::size_t begin = at_;
      Word word;
      if (!read_word(word.text)) return std::nullopt;
      word.place = place(begin, at_);
      words.push_back(std::move(word));
    }
    return words;
  }

 private:
  [[nodiscard]] bool is_space(std::size_t at) const { return kSpaces.find(text_[at]) != std::string_view::npos; }
  [[nodiscard]] Place place(std::size_t begin, std::size_t end) const {
    return {source_, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
  }

  /// Bytes of a backslash and the line end after it; 0 if there is none here.
  [[nodiscard]] std::size_t continuation() const {
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("\\\n")) return 2;
    return rest.starts_with("\\\r\n") ? 3 : rest == "\\" ? 1 : 0;
  }

  void skip_between() {
    while (at_ < text_.size()) {
      if (is_space(at_))
        ++at_;
      else if (text_[at_] == '#')
        at_ = std::min(text_.find('\n', at_), text_.size());
      else if (const std::size_t size = continuation(); size > 0)
        at_ += size;
      else
        return;
    }
  }

  bool read_word(std::string& word) {
    while (at_ < text_.size() && !is_space(at_)) {
      const char c = text_[at_];
      if (c == '\'' || c == '"') {
        const std::size_t begin = at_;
        if (!read_shell_quotes(text_, at_, [&](char byte, std::size_t) { word.push_back(byte); })) {
          out_.push_back(rules::at_place(rules::kUnreadable, "", place(begin, begin + 1), "this quote has no end"));
          return false;
        }
      } else if (c == '\\') {
        if (continuation() > 0) return true;  // the word ends here unless the next line starts with one
        word.push_back(text_[at_ + 1]);
        at_ += 2;
      } else if (c == '$' && at_ + 1 < text_.size() && (text_[at_ + 1] == '{' || text_[at_ + 1] == '(')) {
        read_expansion(word);
      } else {
        word.push_back(c);
        ++at_;
      }
    }
    return true;
  }

  /// `${NAME:-a b}` and `$(command)` stay one word up to the first closing bracket on the same line.
  void read_expansion(std::string& word) {
    const bool brace = text_[at_ + 1] == '{';
    std::size_t& none_before = none_before_[brace ? 0 : 1];
    std::size_t size = 2;
    if (at_ >= none_before) {
      const std::size_t end = std::min(text_.find_first_of(brace ? "}\n" : ")\n", at_), text_.size());
      if (end < text_.size() && text_[end] != '\n')
        size = end + 1 - at_;
      else
        none_before = end;
    }
    word.append(text_.substr(at_, size));
    at_ += size;
  }

  std::string_view text_;
  std::uint32_t source_;
  Diagnostics& out_;
  std::size_t at_ = 0;
  std::array<std::size_t, 2> none_before_{};  // no `}`, no `)` before these offsets: keeps the search linear
};

}  // namespace

std::optional<std::vector<Word>> split_args(const Source& source, std::uint32_t index, Diagnostics& out) {
  return Splitter(source.text, index, out).split();
}

}  // namespace gtp::readers
