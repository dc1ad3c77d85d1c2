#include "validators/source.hpp"

#include <doctest/doctest.h>

using namespace gtp;

TEST_CASE("columns count code points and lines end at line feeds") {
  const Source source{"a", "x: 1\r\n\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z: 2\n"};
  CHECK(locate(source, 0, 1) == Range{{1, 1}, {1, 2}});
  CHECK(locate(source, 3, 4) == Range{{1, 4}, {1, 5}});
  CHECK(locate(source, 15, 16) == Range{{2, 4}, {2, 5}});
  CHECK(locate(source, 3, 18) == Range{{1, 4}, {2, 7}});
}

TEST_CASE("an offset beyond the text means its end") {
  const Source source{"a", "ab\nc"};
  CHECK(locate(source, 100, 200) == Range{{2, 2}, {2, 2}});
  CHECK(locate(source, 3, 1) == Range{{2, 1}, {2, 1}});
  CHECK(locate(Source{"", ""}, 0, 0) == Range{{1, 1}, {1, 1}});
}

TEST_CASE("a line's text has no line end") {
  const Source source{"a", "one\r\ntwo\n\nlast"};
  CHECK(line_text(source, 1) == "one");
  CHECK(line_text(source, 2) == "two");
  CHECK(line_text(source, 3).empty());
  CHECK(line_text(source, 4) == "last");
  CHECK(line_text(source, 5).empty());
  CHECK(line_text(source, 0).empty());
}

TEST_CASE("sources keep their addresses when more are added") {
  Sources sources;
  const std::uint32_t first = sources.add("a", "text");
  const Source* before = &sources[first];
  for (int i = 0; i < 1000; ++i) sources.add("b", "");
  CHECK(&sources[first] == before);
  CHECK(sources[first].text == "text");
  CHECK(sources.size() == 1001);
}
