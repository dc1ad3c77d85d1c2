// OmegaConf's `${...}` in a tree of values: references (`${a.b}`, `${.sibling}`) and the arithmetic resolvers that
// NeMo-RL registers. What depends on anything outside the tree stays unresolved.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtp/config.hpp>

#include "validators/tree.hpp"

namespace gtp::readers {

/// A value of the tree and the keys that lead to it.
struct Located {
  const Node* node = nullptr;
  std::vector<std::string> path{};
};

class Interpolator {
 public:
  /// Both must outlive it. `env` is what `${oc.env:NAME}` can know.
  Interpolator(const Node& root, std::span<const Variable> env) : root_(root), env_(env) {}

  /// The value at a dotted path, references on the way and at its end followed. Nothing if there is none.
  [[nodiscard]] std::optional<Located> find(std::string_view path);

  /// A copy with every reference replaced by its value. A text that cannot be resolved stays as it is written.
  [[nodiscard]] Node resolved(const Located& at);

 private:
  struct Result;

  std::optional<Located> walk(std::vector<std::string> keys, std::size_t depth);
  std::optional<Located> follow(Located at, std::size_t depth);
  std::optional<Result> evaluate(const Located& at, std::size_t depth);
  std::optional<Result> expand(std::string_view text, const std::vector<std::string>& path, std::size_t depth);
  std::optional<Result> reference(std::string_view text, const std::vector<std::string>& path, std::size_t depth);
  std::optional<Result> resolver(std::string_view name, std::string_view arguments,
                                 const std::vector<std::string>& path, std::size_t depth);
  Node resolved(const Located& at, std::size_t depth);
  bool spend(std::size_t work);

  const Node& root_;
  std::span<const Variable> env_;
  std::size_t spent_ = 0;
  std::size_t nodes_ = 0;  // that `resolved` made
};

/// Whether a text has `${`, not escaped by a backslash.
[[nodiscard]] bool has_interpolation(std::string_view text);

/// The text that OmegaConf makes of one with `\${`: of the backslashes before a `${` every second one goes. Those
/// anywhere else are themselves.
[[nodiscard]] std::string unescaped(std::string_view text);

}  // namespace gtp::readers
