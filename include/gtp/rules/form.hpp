// 9xx: the form of an input. Readers report these themselves; the rows give them code, wording and
// documentation like any other rule.
#pragma once

#include <gtp/rule.hpp>

namespace gtp::rules {

inline constexpr Rule kUnreadable{
    "GTP901",
    "input-unreadable",
    Severity::Error,
    Phase::Startup,
    {},
    "the input cannot be read",
    "A file that is missing, is not text, or breaks the grammar of its format says nothing that could be checked.",
    "correct the file at the place shown, or force the format with --input-format",
    ""};
inline constexpr Rule kUnknownOption{
    "GTP902",
    "unknown-option",
    Severity::Error,
    Phase::Startup,
    {},
    "no option of this name exists in the target",
    "Upstream's parser takes no abbreviations and refuses to start on a flag that it does not know.",
    "correct the name, or choose the target that knows it with --target",
    "megatron/training/arguments.py:116"};
inline constexpr Rule kWrongType{
    "GTP903",
    "wrong-type",
    Severity::Error,
    Phase::Startup,
    {},
    "the value is not of the option's type",
    "Upstream's parser converts every value to the option's type and refuses to start when it cannot.",
    "write a value of the type shown",
    "megatron/training/arguments.py:116"};
inline constexpr Rule kNotAChoice{"GTP904",
                                  "not-a-choice",
                                  Severity::Error,
                                  Phase::Startup,
                                  {},
                                  "the value is not one of the option's choices",
                                  "Upstream's parser accepts only the listed words for this option.",
                                  "use one of the listed choices",
                                  "megatron/training/arguments.py:116"};
inline constexpr Rule kDuplicateKey{
    "GTP905",
    "duplicate-key",
    Severity::Warning,
    Phase::Silent,
    {},
    "the key occurs more than once; the last one wins",
    "Readers of YAML and JSON keep the last of several equal keys and say nothing, so the earlier value is lost.",
    "remove all but one",
    ""};
inline constexpr Rule kUnresolved{"GTP906",
                                  "unresolved-value",
                                  Severity::Warning,
                                  Phase::Startup,
                                  {},
                                  "the value depends on something that is not in the input",
                                  "A variable that only the launcher fills in cannot be checked here, so every rule "
                                  "that needs the option is skipped.",
                                  "give the value with --set option=value",
                                  ""};
inline constexpr Rule kOutOfRange{"GTP907",
                                  "integer-out-of-range",
                                  Severity::Error,
                                  Phase::Startup,
                                  {},
                                  "the number does not fit into 64 bits",
                                  "Sizes are counted in 64-bit integers; a larger number is a slip, whatever reads it.",
                                  "write a smaller number",
                                  ""};
inline constexpr Rule kWrongArity{
    "GTP908",
    "wrong-number-of-values",
    Severity::Error,
    Phase::Startup,
    {},
    "the option takes another number of values",
    "A flag that only switches something takes no value, and an option takes as many values as upstream's parser says.",
    "write as many values as shown",
    "megatron/training/arguments.py:116"};
inline constexpr Rule kNotUnderstood{
    "GTP909",
    "not-understood",
    Severity::Warning,
    Phase::Silent,
    {},
    "this part of the input is not understood and was left out",
    "What a reader cannot interpret is never guessed; the rest of the input is checked without it.",
    "check that nothing important stands there",
    ""};
inline constexpr Rule kRequiredMissing{"GTP910",
                                       "required-missing",
                                       Severity::Error,
                                       Phase::Startup,
                                       {},
                                       "the option was asked for with --require and is not known",
                                       "With --require or --complete an unknown value is an error, so that a check in "
                                       "CI cannot pass on half a configuration.",
                                       "set the option",
                                       ""};
inline constexpr Rule kModelFamily{"GTP911",
                                   "model-file-incomplete",
                                   Severity::Warning,
                                   Phase::Silent,
                                   {},
                                   "the model file does not give this part of the model's shape",
                                   "Hugging Face configurations name the same quantity differently in each family; "
                                   "what cannot be found stays unknown.",
                                   "set the missing options beside the model file",
                                   ""};
inline constexpr Rule kConflictingSources{
    "GTP912",
    "conflicting-sources",
    Severity::Warning,
    Phase::Silent,
    {},
    "the model file and the configuration disagree; the configuration wins",
    "The configuration's own value is what upstream would be started with, but a shape that differs from the model's "
    "cannot load its weights.",
    "remove one of the two, or make them equal",
    ""};

inline constexpr Rule kDerivedOption{"GTP913",
                                     "derived-option",
                                     Severity::Error,
                                     Phase::Startup,
                                     {},
                                     "upstream derives this value and no option sets it",
                                     "The value follows from other options; upstream has no flag for it.",
                                     "remove it, and set the options that it follows from",
                                     "megatron/training/arguments.py:2369"};
inline constexpr Rule kRematSize{
    "GTP009",
    "remat-sizes-have-no-cli",
    Severity::Error,
    Phase::Startup,
    {},
    "remat sizes are derived from the weight shards and have no flag",
    "GTP_remat = weight shards / TP and EGTP_remat = expert weight shards / ETP; upstream leaves both out of its "
    "parser, and a value given another way is overwritten without a message.",
    "set the weight shards instead",
    "megatron/training/arguments.py:2369"};

inline constexpr const Rule* kForm[] = {&kUnreadable,    &kUnknownOption,   &kWrongType,   &kNotAChoice,
                                        &kDuplicateKey,  &kUnresolved,      &kOutOfRange,  &kWrongArity,
                                        &kNotUnderstood, &kRequiredMissing, &kModelFamily, &kConflictingSources,
                                        &kDerivedOption, &kRematSize};

/// A diagnostic of a form row at a place; `option` may be empty.
[[nodiscard]] inline Diagnostic at_place(const Rule& rule, std::string_view option, Place place, std::string label) {
  return {.severity = rule.severity,
          .phase = rule.phase,
          .code = rule.code,
          .rule = rule.id,
          .message = std::string(rule.message),
          .primary = {std::string(option), place, std::move(label)},
          .related = {},
          .notes = {},
          .help = std::string(rule.help),
          .fix = {}};
}

}  // namespace gtp::rules
