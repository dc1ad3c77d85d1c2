// Collects what a Megatron-Bridge configuration says, path by path, and turns it into options once all is known:
// several paths can speak of one option. Private to bridge.cpp and bridge_overrides.cpp.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "validators/reading.hpp"
#include "validators/tree.hpp"

namespace gtp::readers {

class BridgeValues {
 public:
  /// `partial`: the input changes a recipe. Only in such an input, which people write, are names checked for slips.
  BridgeValues(Reading& reading, bool partial) : reading_(reading), partial_(partial) {
    reading_.config.partial = partial;
  }

  /// A value, or a group of values, at a dotted path. A later one at the same path wins.
  void take(std::string path, const Node& value, Place key_place);
  /// As if nothing had been said of the path or of what is below it.
  void drop(std::string_view path);
  /// To be called once, at the end.
  void apply();

 private:
  void take_group(const std::string& path, const Node& group, Place key_place);
  void check_name(std::string_view path, Place key_place);
  [[nodiscard]] const Node* taken(std::string_view path) const;
  void set_recipe();
  void set_options();
  void set_activation();
  void set_dataset();
  void set_vocabulary();
  void set_world();
  void refuse_remat_sizes();
  void set(OptionId option, const Node& value);
  void set(OptionId option, bool value, Place place);
  void set_words(OptionId option, const std::vector<Word>& words, Place place);
  [[nodiscard]] bool has(OptionId option) const { return exists(option, reading_.config.target()); }

  Reading& reading_;
  bool partial_;
  std::map<std::string, Node, std::less<>> taken_{};  // only paths that mean something
  std::size_t names_checked_ = 0;
};

}  // namespace gtp::readers
