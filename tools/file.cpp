#include "tools/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "tools/could_not_run.hpp"

namespace gtp::cli {

namespace {

constexpr std::size_t kChunk = 65536;

/// The system's words, in the case that labels have.
std::string reason_of(int error) {
  std::string reason = std::strerror(error);
  if (!reason.empty() && reason[0] >= 'A' && reason[0] <= 'Z') reason[0] = static_cast<char>(reason[0] | 0x20);
  return reason;
}

Unreadable too_large() { return {fmt::format("larger than {} MiB", kLargestInput >> 20U)}; }

std::variant<std::string, Unreadable> read_all(int file, std::size_t expected) {
  std::string text(expected + 1, '\0');  // one more than there is, so that the end shows without growing
  std::size_t size = 0;
  while (true) {
    if (size == text.size()) text.resize(size + kChunk);
    const ssize_t got = ::read(file, text.data() + size, text.size() - size);
    if (got < 0 && errno != EINTR) return Unreadable{reason_of(errno)};
    if (got > 0) size += static_cast<std::size_t>(got);
    if (size > kLargestInput) return too_large();
    if (got == 0) break;
  }
  text.resize(size);
  return text;
}

std::variant<std::string, Unreadable> read_regular(int file) {
  struct stat status {};
  if (::fstat(file, &status) != 0) return Unreadable{reason_of(errno)};
  if (S_ISDIR(status.st_mode)) return Unreadable{"is a directory"};
  if (!S_ISREG(status.st_mode)) return Unreadable{"is not a regular file; pipe it to standard input and name it `-`"};
  if (static_cast<std::size_t>(status.st_size) > kLargestInput) return too_large();
  return read_all(file, static_cast<std::size_t>(status.st_size));
}

}  // namespace

std::variant<std::string, Unreadable> read_input(const std::string& path) {
  if (path == "-") return read_all(STDIN_FILENO, kChunk);
  if (path.find('\0') != std::string::npos) return Unreadable{"no such file or directory"};
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return Unreadable{reason_of(errno)};
  auto text = read_regular(file);
  ::close(file);
  return text;
}

Output::Output(std::string path) : path_(path == "-" ? std::string() : std::move(path)) {}

Output::~Output() {
  if (file_ >= 0 && !path_.empty()) ::close(file_);
}

void Output::open() {
  if (file_ >= 0) return;
  constexpr mode_t kMode = 0666;  // less what the umask takes
  file_ = path_.empty() ? STDOUT_FILENO : ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode);
  if (file_ < 0) fail(errno);
}

void Output::write(std::string_view text) {
  if (buffer_.size() + text.size() >= kChunk) {
    flush();
    put(text);
  } else {
    buffer_.append(text);
  }
}

void Output::put(std::string_view text) {
  open();
  while (!text.empty()) {
    const ssize_t done = ::write(file_, text.data(), text.size());
    if (done < 0 && errno != EINTR) fail(errno);
    if (done > 0) text.remove_prefix(static_cast<std::size_t>(done));
  }
}

void Output::flush() {
  put(buffer_);
  buffer_.clear();
}

void Output::finish() {
  flush();
  if (path_.empty()) return;
  const int file = std::exchange(file_, -1);
  if (::close(file) != 0) fail(errno);  // a full disk may show only now
}

void Output::fail(int error) {
  const std::string name = path_.empty() ? "standard output" : fmt::format("`{}`", path_);
  throw CouldNotRun{.message = fmt::format("cannot write {}: {}", name, reason_of(error)),
                    .silent = path_.empty() && error == EPIPE};
}

bool Output::terminal() const { return path_.empty() && ::isatty(STDOUT_FILENO) == 1; }

namespace {

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(file, text.data(), text.size());
    if (done < 0 && errno != EINTR) throw CouldNotRun{reason_of(errno), {}};
    if (done > 0) text.remove_prefix(static_cast<std::size_t>(done));
  }
}

/// Through a link, to the file itself: what it points to is replaced, not the link.
std::string resolved(const std::string& path) {
  std::error_code error;
  const auto real = std::filesystem::canonical(path, error);
  return error ? path : real.string();
}

}  // namespace

void replace_file(const std::string& path, std::string_view expected, std::string_view text) {
  const auto fail = [&](std::string_view reason) -> CouldNotRun {
    return {fmt::format("cannot mend `{}`: {}", path, reason), "the file is as it was"};
  };
  const std::string target = resolved(path);
  const auto now = read_input(target);
  if (const auto* unreadable = std::get_if<Unreadable>(&now)) throw fail(unreadable->reason);
  if (std::get<std::string>(now) != expected) throw fail("it has changed meanwhile");
  struct stat status {};
  if (::stat(target.c_str(), &status) != 0) throw fail(reason_of(errno));
  std::string beside = target + ".XXXXXX";
  const int file = ::mkstemp(beside.data());
  if (file < 0) throw fail(reason_of(errno));
  try {
    write_all(file, text);
    if (::fchmod(file, status.st_mode & 07777U) != 0 || ::fsync(file) != 0) throw CouldNotRun{reason_of(errno), {}};
    if (::rename(beside.c_str(), target.c_str()) != 0) throw CouldNotRun{reason_of(errno), {}};
  } catch (const CouldNotRun& failure) {
    ::close(file);
    ::unlink(beside.c_str());
    throw fail(failure.message);
  }
  ::close(file);
}

void write_error(std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(STDERR_FILENO, text.data(), text.size());
    if (done < 0 && errno != EINTR) return;
    if (done > 0) text.remove_prefix(static_cast<std::size_t>(done));
  }
}

}  // namespace gtp::cli
