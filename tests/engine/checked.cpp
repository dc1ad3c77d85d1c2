#include "gtp/checked.hpp"

#include <doctest/doctest.h>

#include <array>
#include <limits>

namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kTrillion = 1'000'000'000'000;

static_assert(gtp::checked_product({2, 3, 7}) == 42);
static_assert(gtp::checked_product({}) == 1);
static_assert(!gtp::checked_product({kTrillion, kTrillion}));
static_assert(gtp::exact_quotient(12, 4) == 3);

}  // namespace

TEST_CASE("a product is exact up to the largest 64-bit number and absent beyond it") {
  CHECK(gtp::checked_product({3'037'000'499, 3'037'000'499}) == 9'223'372'030'926'249'001);
  CHECK_FALSE(gtp::checked_product({3'037'000'500, 3'037'000'500}));
  CHECK(gtp::checked_product({kMost, 1}) == kMost);
  CHECK(gtp::checked_product({kMost, -1}) == -kMost);
  CHECK_FALSE(gtp::checked_product({kLeast, -1}));
  CHECK_FALSE(gtp::checked_product({kTrillion, kTrillion, 0}));
  const std::array<std::int64_t, 3> factors{4, 5, 6};
  CHECK(gtp::checked_product(factors) == 120);
}

TEST_CASE("sums and differences are exact or absent") {
  CHECK(gtp::checked_add(kMost - 1, 1) == kMost);
  CHECK_FALSE(gtp::checked_add(kMost, 1));
  CHECK_FALSE(gtp::checked_add(kLeast, -1));
  CHECK(gtp::checked_subtract(-1, kMost) == kLeast);
  CHECK_FALSE(gtp::checked_subtract(0, kLeast));
  CHECK(gtp::checked_multiply(-7, 6) == -42);
  CHECK_FALSE(gtp::checked_multiply(kMost, 2));
}

TEST_CASE("only a positive divisor divides, and only without remainder") {
  CHECK(gtp::exact_quotient(-12, 4) == -3);
  CHECK_FALSE(gtp::exact_quotient(13, 4));
  CHECK_FALSE(gtp::exact_quotient(12, 0));
  CHECK_FALSE(gtp::exact_quotient(12, -4));
  CHECK_FALSE(gtp::exact_quotient(kLeast, -1));
  CHECK(gtp::divides(4, 12));
  CHECK(gtp::divides(4, 0));
  CHECK_FALSE(gtp::divides(4, 13));
  CHECK_FALSE(gtp::divides(0, 0));
  CHECK_FALSE(gtp::divides(-4, 12));
}

TEST_CASE("rounding up never passes the end of the number range") {
  CHECK(gtp::ceil_quotient(13, 4) == 4);
  CHECK(gtp::ceil_quotient(12, 4) == 3);
  CHECK(gtp::ceil_quotient(-13, 4) == -3);
  CHECK(gtp::ceil_quotient(kMost, 2) == kMost / 2 + 1);
  CHECK_FALSE(gtp::ceil_quotient(1, 0));
  CHECK(gtp::round_up_to_multiple(33, 16) == 48);
  CHECK(gtp::round_up_to_multiple(48, 16) == 48);
  CHECK(gtp::round_up_to_multiple(0, 16) == 0);
  CHECK_FALSE(gtp::round_up_to_multiple(kMost, 16));
  CHECK_FALSE(gtp::round_up_to_multiple(16, 0));
}
