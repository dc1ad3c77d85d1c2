// The C header as a C++20 program sees it: it compiles on its own, twice, and its structs are what C sees.
#include "gtp/runtime.h"

#include <doctest/doctest.h>

#include <string_view>
#include <type_traits>

static_assert(std::is_standard_layout_v<gtp_runtime_options> && std::is_trivially_copyable_v<gtp_weight_options>);
static_assert(offsetof(gtp_runtime_options, size) == 0 && offsetof(gtp_weight_options, size) == 0);
static_assert(offsetof(gtp_gathered_view, size) == 0 && offsetof(gtp_counters, size) == 0);

TEST_CASE("the C header serves a C++ caller") {
  gtp_host_world_options options{};
  options.size = sizeof options;
  options.ranks = 1;
  gtp_host_world* world = nullptr;
  REQUIRE(gtp_host_world_create(&options, &world) == GTP_OK);
  CHECK(gtp_backend_begin(world, 5, nullptr) == GTP_INVALID_ARGUMENT);
  CHECK(std::string_view(gtp_last_error()) == "out is NULL");
  CHECK(gtp_host_world_destroy(world) == GTP_OK);
}
