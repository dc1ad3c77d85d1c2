// Precompiled for the readers: what all of them include.
#include <fmt/format.h>

#include <gtp/assign.hpp>
