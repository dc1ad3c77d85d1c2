// Hugging Face `config.json`: the shape of a model as Megatron's options. Families name the same quantity
// differently; one table of keys covers them (hugging_face_fields.hpp), and few rules decide the rest.
#pragma once

#include <vector>

#include "validators/reading.hpp"
#include "validators/tree.hpp"

namespace gtp::readers {

/// Whether the keys of a map are those of such a file.
[[nodiscard]] bool is_hugging_face(const Node& root);

/// The settings that the file stands for, each with the place that decided it. What no key gives is
/// reported (`kModelFamily`). Precondition: `root` is a map.
[[nodiscard]] std::vector<Setting> read_hugging_face(const Node& root, const Target& target, Place whole,
                                                     Diagnostics& out);

}  // namespace gtp::readers
