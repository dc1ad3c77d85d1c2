#include <gtp/package_version.hpp>

#include <doctest/doctest.h>

using gtp::PackageVersion;

TEST_CASE("package versions are ordered by release, then stage") {
  const auto v = [](const char* text) { return PackageVersion::parse(text).value(); };
  CHECK(v("2.19") == v("2.19.0"));
  CHECK(v("2.9.0") < v("2.19.0"));
  CHECK(v("2.19.0.dev0") < v("2.19.0rc1"));
  CHECK(v("2.19.0rc1") < v("2.19.0"));
  CHECK(v("2.19.0") < v("2.19.0.post1"));
  CHECK(v("v2.20.0.dev0+abc") > v("2.19.1"));
}

TEST_CASE("what is not a version is not one") {
  for (const char* text : {"", "x", "2.x", "2.19.0.foo", "-1", "2.19.0.dev0x", "99999999999"})
    CHECK_MESSAGE(!PackageVersion::parse(text), text);
}
