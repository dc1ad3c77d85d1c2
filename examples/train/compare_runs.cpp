// compare_runs WEIGHTS_A WEIGHTS_B [LOG_A LOG_B]: how far two runs are apart, in their final weights (of --weights) and
// in the losses that they printed. Exit codes: 0 compared, whatever the distance; 1 they are not of the same model or
// length; 2 a usage or file error.
#include <fmt/core.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "weights_file.hpp"

namespace {

using namespace gtp::train;

/// By tensor; nullopt for a file that cannot be read, or whose copies of an element differ.
std::optional<std::map<std::string, std::vector<float>>> whole_weights(const std::string& path) {
  auto pieces = read_weights(path);
  if (!pieces) {
    fmt::print(stderr, "cannot read {}\n", path);
    return std::nullopt;
  }
  std::vector<TrainLog> log(1);
  log[0].pieces = std::move(*pieces);
  auto whole = assemble(log);
  if (!whole) fmt::print(stderr, "{} lacks elements, or has two values for one\n", path);
  return whole;
}

struct Distance {
  std::size_t differing = 0;
  std::size_t elements = 0;
  double largest = 0.0;
  std::string where;
  double squares = 0.0;
  double reference = 0.0;
};

void add(Distance& distance, const std::string& name, const std::vector<float>& a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) ++distance.differing;
    const double gap = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    distance.squares += gap * gap;
    distance.reference += static_cast<double>(b[i]) * static_cast<double>(b[i]);
    if (!(gap <= distance.largest)) {
      distance.largest = gap;
      distance.where = fmt::format("{}[{}]", name, i);
    }
  }
  distance.elements += a.size();
}

int compare_weights(const std::string& a_path, const std::string& b_path) {
  const auto a = whole_weights(a_path), b = whole_weights(b_path);
  if (!a || !b) return 2;
  Distance distance;
  bool same = a->size() == b->size();
  for (const auto& [name, values] : *a) {
    const auto other = b->find(name);
    same = same && other != b->end() && other->second.size() == values.size();
    if (!same) break;
    add(distance, name, values, other->second);
  }
  if (!same) {
    fmt::print(stderr, "the weights are not of the same model\n");
    return 1;
  }
  fmt::print("weights: {} of {} differ | largest difference {:.3e}{}{} | relative distance {:.3e}\n",
             distance.differing, distance.elements, distance.largest, distance.where.empty() ? "" : " at ",
             distance.where, std::sqrt(distance.squares / distance.reference));
  return 0;
}

/// The values behind `| loss `, in the order of the lines.
std::optional<std::vector<double>> losses_in(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    fmt::print(stderr, "cannot read {}\n", path);
    return std::nullopt;
  }
  constexpr std::string_view kLabel = "| loss ";
  std::vector<double> out;
  for (std::string line; std::getline(file, line);) {
    const std::size_t at = line.find(kLabel);
    if (at != std::string::npos) out.push_back(std::strtod(line.c_str() + at + kLabel.size(), nullptr));
  }
  return out;
}

int compare_losses(const std::string& a_path, const std::string& b_path) {
  const auto a = losses_in(a_path), b = losses_in(b_path);
  if (!a || !b) return 2;
  if (a->size() != b->size() || a->empty()) {
    fmt::print(stderr, "the logs have {} and {} losses\n", a->size(), b->size());
    return 1;
  }
  double largest = 0.0, relative = 0.0;
  for (std::size_t i = 0; i < a->size(); ++i) {
    const double gap = std::fabs((*a)[i] - (*b)[i]);
    largest = std::max(largest, gap);
    relative = std::max(relative, gap / std::fabs((*b)[i]));
  }
  fmt::print("losses: {} | largest difference {:.3e} | largest relative difference {:.3e} | last {:.6f} and {:.6f}\n",
             a->size(), largest, relative, a->back(), b->back());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  if (words.size() != 3 && words.size() != 5) {
    fmt::print(stderr, "usage: compare_runs WEIGHTS_A WEIGHTS_B [LOG_A LOG_B]\n");
    return 2;
  }
  const int weights = compare_weights(words[1], words[2]);
  if (weights != 0 || words.size() == 3) return weights;
  return compare_losses(words[3], words[4]);
}
