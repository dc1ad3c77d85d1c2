// Precompiled for the tests of the readers and of the program.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <gtp/check.hpp>

#include "validators/load.hpp"
