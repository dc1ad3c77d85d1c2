// Runs a program to its end, within a time limit, and keeps what it wrote. No shell is involved.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace gtp::test {

struct Command {
  std::vector<std::string> words;          ///< the program and its arguments
  std::string folder{};                    ///< to run in; empty: this one
  std::string input{};                     ///< standard input, up to what a pipe holds (64 KiB)
  std::vector<std::string> environment{};  ///< `NAME=value`, all that the program gets
  std::chrono::seconds limit{60};
  std::string output_file{};  ///< where standard output goes instead of `output`
};

struct Outcome {
  int exit = -1;  ///< exit status; 128 + signal when a signal ended it
  bool timed_out = false;
  std::string output;
  std::string error;
};

namespace detail {

struct Pipe {
  std::array<int, 2> ends{-1, -1};

  Pipe() {
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close(0);
    close(1);
  }
  void close(std::size_t end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
};

inline std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

inline pid_t spawn(Command& command, const Pipe& input, const Pipe& output, const Pipe& error) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (!command.folder.empty()) posix_spawn_file_actions_addchdir_np(&actions, command.folder.c_str());
  posix_spawn_file_actions_adddup2(&actions, input.ends[0], STDIN_FILENO);
  if (command.output_file.empty())
    posix_spawn_file_actions_adddup2(&actions, output.ends[1], STDOUT_FILENO);
  else
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, command.output_file.c_str(), O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, error.ends[1], STDERR_FILENO);
  std::vector<char*> arguments = pointers(command.words), variables = pointers(command.environment);
  pid_t process = -1;
  const int failure = ::posix_spawn(&process, arguments.front(), &actions, nullptr, arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) throw std::runtime_error("cannot run " + command.words.front());
  return process;
}

/// Reads both ends until they close. False at the time limit.
inline bool read_to_end(Pipe& output, Pipe& error, Outcome& outcome, std::chrono::steady_clock::time_point deadline) {
  std::array<pollfd, 2> polled{{{output.ends[0], POLLIN, 0}, {error.ends[0], POLLIN, 0}}};
  const std::array<std::string*, 2> texts{&outcome.output, &outcome.error};
  while (polled[0].fd >= 0 || polled[1].fd >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    if (::poll(polled.data(), polled.size(), static_cast<int>(left.count())) <= 0) continue;
    for (std::size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) continue;
      std::array<char, 65536> buffer;
      const ssize_t size = ::read(polled[i].fd, buffer.data(), buffer.size());
      if (size > 0)
        texts[i]->append(buffer.data(), static_cast<std::size_t>(size));
      else
        polled[i].fd = -1;
    }
  }
  return true;
}

}  // namespace detail

/// Throws when the program cannot be started at all.
inline Outcome run(Command command) {
  detail::Pipe input, output, error;
  const pid_t process = detail::spawn(command, input, output, error);
  input.close(0);
  output.close(1);
  error.close(1);
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);  // the program need not read its input
  (void)!::write(input.ends[1], command.input.data(), command.input.size());
  ::sigaction(SIGPIPE, &before, nullptr);
  input.close(1);
  Outcome outcome;
  outcome.timed_out = !detail::read_to_end(output, error, outcome, std::chrono::steady_clock::now() + command.limit);
  if (outcome.timed_out) ::kill(process, SIGKILL);
  int status = 0;
  ::waitpid(process, &status, 0);
  outcome.exit = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

}  // namespace gtp::test
