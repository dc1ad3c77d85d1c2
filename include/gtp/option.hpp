// What one row of the table of options says. The rows are in options/, one file a section; the table
// itself and the look-ups are in options.hpp.
#pragma once

#include <cstdint>
#include <string_view>

#include <gtp/target.hpp>

namespace gtp {

/// Options of one section are described together: a section of which an input says nothing is
/// unknown, and in a section it does describe an absent option has the target's default.
enum class Section : std::uint8_t {
  Topology,
  Model,
  Batch,
  Precision,
  Overlap,  ///< communication overlap, DDP, process-group tuning
  Optimizer,
  CudaGraphs,
  Recompute,
  Checkpoint,
  Data,
  Run,           ///< logging, profiling, inference, RL: what no other section holds
  Bridge,        ///< Megatron-Bridge's own options, which Megatron-LM does not know
  Surroundings,  ///< what the job runs on; not Megatron's options
  Derived,       ///< what upstream computes and a user cannot set
};
inline constexpr int kSectionCount = 14;

enum class Type : std::uint8_t {
  Bool,
  Int,
  Float,
  String,
  Integers,
  Floats,
  Words,
  Frequency,  ///< an integer, or a list expression such as `([0]*3+[1]*58)`
};

/// How many words an option takes on a command line.
enum class Arity : std::uint8_t {
  One,
  OneOrMore,  ///< argparse `nargs='+'`
  Any,        ///< argparse `nargs='*'`
  Three,      ///< argparse `nargs=3`
};

/// A default, as a literal type. A list default is its words, separated by spaces.
struct Literal {
  enum class Kind : std::uint8_t { None, Bool, Int, Float, String } kind = Kind::None;
  bool boolean = false;
  std::int64_t integer = 0;
  double real = 0;
  std::string_view text{};

  constexpr Literal() = default;
  constexpr Literal(bool value) : kind(Kind::Bool), boolean(value) {}
  constexpr Literal(int value) : kind(Kind::Int), integer(value) {}
  constexpr Literal(std::int64_t value) : kind(Kind::Int), integer(value) {}
  constexpr Literal(double value) : kind(Kind::Float), real(value) {}
  constexpr Literal(const char* value) : kind(Kind::String), text(value) {}
};
inline constexpr Literal kNone{};

struct Option {
  std::string_view name;  ///< Megatron's own name: the `dest` of its parser
  Section section;
  Type type;
  Literal default_value;
  std::string_view doc;

  /// Allowed words, separated by spaces; empty: any.
  std::string_view choices{};
  /// Command-line flags where they are not the regular ones (see options.hpp, `flags_of`), separated
  /// by spaces; `--flag=true` and `--flag=false` are flags without a value that store that constant.
  std::string_view flags{};
  /// Where Megatron-Bridge keeps it, as a dotted path; empty: nowhere.
  std::string_view bridge{};
  Arity arity = Arity::One;
  /// Upstream cannot start without it, so it has no default: unknown when absent.
  bool required = false;
  Version first = kOldestVersion;
  Version last = kNewestVersion;

  [[nodiscard]] constexpr bool in(Version version) const { return first <= version && version <= last; }
  [[nodiscard]] constexpr bool in(const Target& target) const {
    return in(target.version) && (section != Section::Bridge || target.framework == Framework::kBridge);
  }
};

}  // namespace gtp
