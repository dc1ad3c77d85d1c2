// Precompiled for the engine tests: what nearly all of them include.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <gtp/check.hpp>
