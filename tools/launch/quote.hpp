// One function a language that puts any text where the language has a value, so that it arrives byte for byte. No other
// code of the launch files quotes anything.
#pragma once

#include <string>
#include <string_view>

namespace gtp::cli {

/// A word of a POSIX shell: as it is where nothing in it means anything to a shell, else in single quotes.
[[nodiscard]] std::string shell_quoted(std::string_view word);

/// As `shell_quoted`, for Bash alone: a carriage return is written as an escape, because Slurm takes a script with line
/// ends of DOS for a mistake.
[[nodiscard]] std::string bash_quoted(std::string_view word);

/// A YAML scalar in double quotes, on one line. Precondition: UTF-8.
[[nodiscard]] std::string yaml_quoted(std::string_view text);

/// What Kubernetes makes `text` of: it replaces `$(NAME)` and `$$` in commands, arguments and variables.
[[nodiscard]] std::string kubernetes_escaped(std::string_view text);

/// A text as the value of a Hydra override on an OmegaConf tree: bare where it can be read as nothing but text, else in
/// double quotes, which a shell's single quotes can go round, with `${` escaped, which OmegaConf would replace.
[[nodiscard]] std::string hydra_quoted(std::string_view text);

/// A text for one line of a comment: without line ends and other control characters.
[[nodiscard]] std::string comment_text(std::string_view text);

}  // namespace gtp::cli
