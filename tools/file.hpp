// Reading a whole input, and writing output so that no failure goes unseen.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

namespace gtp::cli {

/// More than any configuration; keeps a wrong file from taking memory and time.
inline constexpr std::size_t kLargestInput = std::size_t{16} << 20U;

/// Why a file could not be read, as a label: `no such file or directory`.
struct Unreadable {
  std::string reason;
};

/// The bytes of a regular file, or of standard input for `-`. Never waits for a FIFO or a device that is named.
[[nodiscard]] std::variant<std::string, Unreadable> read_input(const std::string& path);

/// Where results go: standard output, or a file. Buffers; throws CouldNotRun when something cannot be written.
class Output {
 public:
  /// An empty path, or `-`: standard output. A file is opened at the first byte, so that it stays as it is when
  /// there is nothing to write.
  explicit Output(std::string path);
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output();

  void write(std::string_view text);
  /// Everything is written and the file is closed. To be called at the end of every success.
  void finish();
  /// Whether a person watches it.
  [[nodiscard]] bool terminal() const;

 private:
  void open();
  void put(std::string_view text);
  void flush();
  [[noreturn]] void fail(int error);

  std::string path_;
  std::string buffer_;
  int file_ = -1;
};

/// Puts `text` in the place of a regular file that holds `expected`: whole or not at all, with the file's permissions.
/// Throws CouldNotRun when it cannot, or when the file has changed meanwhile.
void replace_file(const std::string& path, std::string_view expected, std::string_view text);

/// Writes to standard error; a failure there can be told to nobody.
void write_error(std::string_view text);

}  // namespace gtp::cli
