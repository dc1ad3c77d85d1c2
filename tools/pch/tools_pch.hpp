// Precompiled for the program: what nearly all of its files include.
#include <fmt/format.h>

#include <gtp/check.hpp>

#include "validators/load.hpp"
