// gtplan: plans and validates Generalized Tensor Parallelism. See app.hpp.
#include <csignal>
#include <string>
#include <vector>

#include "tools/app.hpp"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of write, like a full disk
  return gtp::cli::run(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
