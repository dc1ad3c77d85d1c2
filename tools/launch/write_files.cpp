#include "tools/launch/write_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "tools/could_not_run.hpp"

namespace gtp::cli {

namespace {

[[noreturn]] void fail(const std::string& path, int error) {
  throw CouldNotRun{fmt::format("cannot write `{}`: {}", path, std::generic_category().message(error))};
}

/// An open folder, so that nobody can move it away between two files.
class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {
    std::error_code error;
    std::filesystem::create_directories(path_, error);
    if (error) fail(path_, error.value());
    file_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file_ < 0) fail(path_, errno);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { ::close(file_); }

  [[nodiscard]] int descriptor() const { return file_; }
  [[nodiscard]] std::string path_of(const std::string& name) const {
    return (std::filesystem::path(path_) / name).string();
  }

  void expect_free(const std::string& name, bool force) const {
    struct stat status {};
    if (::fstatat(file_, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) return;
      fail(path_of(name), errno);
    }
    if (!S_ISREG(status.st_mode))
      throw CouldNotRun{fmt::format("`{}` is no regular file", path_of(name)), "choose another folder"};
    if (!force)
      throw CouldNotRun{fmt::format("`{}` is there already", path_of(name)),
                        "--force replaces it; or choose another folder"};
  }

 private:
  std::string path_;
  int file_ = -1;
};

/// The files under other names until all are written; those names are gone at the end, whatever happens.
class Staged {
 public:
  Staged(const Folder& folder, std::span<const OutputFile> files) : folder_(folder), files_(files) {
    for (const OutputFile& file : files_) write(file);
  }
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;
  ~Staged() {
    for (const std::string& name : names_) ::unlinkat(folder_.descriptor(), name.c_str(), 0);
  }

  void publish(bool force) {
    for (std::size_t i = 0; i < files_.size(); ++i) publish(names_[i], files_[i].path, force);
  }

 private:
  void write(const OutputFile& file) {
    constexpr mode_t kFile = 0666, kProgram = 0777;  // less what the umask takes
    const std::string name = fmt::format(".{}.{}", file.path, ::getpid());
    const int descriptor =
        ::openat(folder_.descriptor(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                 file.executable ? kProgram : kFile);
    if (descriptor < 0) fail(folder_.path_of(name), errno);
    names_.push_back(name);
    int error = 0;
    for (std::size_t at = 0; at < file.text.size() && error == 0;) {
      const ssize_t done = ::write(descriptor, file.text.data() + at, file.text.size() - at);
      if (done > 0) at += static_cast<std::size_t>(done);
      if (done < 0 && errno != EINTR) error = errno;
    }
    if (::close(descriptor) != 0 && error == 0) error = errno;
    if (error != 0) fail(folder_.path_of(file.path), error);
  }

  /// A link fails where a name has appeared meanwhile, a rename does not.
  void publish(const std::string& from, const std::string& to, bool force) {
    const int folder = folder_.descriptor();
    const int failed = force ? ::renameat(folder, from.c_str(), folder, to.c_str())
                             : ::linkat(folder, from.c_str(), folder, to.c_str(), 0);
    if (failed == 0) {
      if (!force) published_.push_back(to);
      return;
    }
    const int error = errno;
    for (const std::string& name : published_) ::unlinkat(folder, name.c_str(), 0);
    fail(folder_.path_of(to), error);
  }

  const Folder& folder_;
  std::span<const OutputFile> files_;
  std::vector<std::string> names_;
  std::vector<std::string> published_;
};

}  // namespace

void write_files(const std::string& folder, std::span<const OutputFile> files, bool force) {
  const Folder open(folder);
  for (const OutputFile& file : files) open.expect_free(file.path, force);
  Staged(open, files).publish(force);
}

}  // namespace gtp::cli
