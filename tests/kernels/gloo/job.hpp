// Starts this test program once per rank, as a launcher would: each process runs one test case that is skipped
// otherwise, with the environment of its rank.
#pragma once

#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

extern char** environ;

namespace gtp::test {

/// A port that nobody listens on just now.
inline std::uint16_t free_port() {
  const int probe = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(probe);
  return ntohs(address.sin_port);
}

/// How each process ended, in order of start: its exit status, or minus the signal. "0 -9"
using Ends = std::string;

class Job {
 public:
  explicit Job(std::string test_case) : test_case_(std::move(test_case)) {}

  void start(std::int64_t rank, std::int64_t world_size) {
    std::vector<std::string> variables;
    for (char** each = environ; *each != nullptr; ++each) variables.emplace_back(*each);
    variables.push_back("RANK=" + std::to_string(rank));
    variables.push_back("LOCAL_RANK=" + std::to_string(rank));
    variables.push_back("WORLD_SIZE=" + std::to_string(world_size));
    variables.push_back("MASTER_ADDR=127.0.0.1");
    variables.push_back("MASTER_PORT=" + std::to_string(port_));
    std::vector<std::string> arguments{"/proc/self/exe", "--no-skip", "--minimal", "--test-case=" + test_case_};
    pid_t child = 0;
    const std::vector<char*> argv = pointers(arguments);
    const std::vector<char*> envp = pointers(variables);
    if (::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, argv.data(), envp.data()) == 0) {
      children_.push_back(child);
    }
  }

  Ends wait() {
    Ends ends;
    for (const pid_t child : children_) {
      int status = 0;
      ::waitpid(child, &status, 0);
      if (!ends.empty()) ends += ' ';
      ends += std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    }
    return ends;
  }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (std::string& text : texts) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
  }

  std::string test_case_;
  std::uint16_t port_ = free_port();
  std::vector<pid_t> children_;
};

inline Ends run_job(const std::string& test_case, std::int64_t ranks) {
  Job job(test_case);
  for (std::int64_t rank = 0; rank < ranks; ++rank) job.start(rank, ranks);
  return job.wait();
}

}  // namespace gtp::test
