// Any text through each language and back.
#include <doctest/doctest.h>

#include <string>

#include "tests/cli/launch.hpp"
#include "tools/launch/quote.hpp"
#include "validators/yaml_events.hpp"

namespace {

using namespace gtp;
using namespace gtp::test;

/// The words that a shell makes of `text`.
std::vector<std::string> through_shell(const std::string& shell, const std::string& text) {
  const Outcome outcome = run({.words = {shell, "-c", "printf '%s\\0' " + text}});
  CHECK(outcome.error.empty());
  return zero_terminated(outcome.output);
}

/// Kubernetes' own expansion: `$$` is `$`, and `$(NAME)` a variable.
std::string expanded(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text.substr(at, 2) == "$$")
      out.push_back(text[++at]);
    else if (text.substr(at, 2) == "$(" && text.find(')', at) != std::string_view::npos)
      out += "EXPANDED", at = text.find(')', at);
    else
      out.push_back(text[at]);
  }
  return out;
}

/// Hydra's grammar of quoted values, then OmegaConf's of texts with interpolations.
std::string through_hydra(std::string_view text) {
  if (!text.starts_with('"')) return std::string(text);
  std::string quoted;
  std::size_t backslashes = 0;
  for (std::size_t at = 1; at < text.size(); ++at) {
    if (text[at] == '"') {
      quoted.resize(quoted.size() - backslashes + backslashes / 2);
      if (backslashes % 2 == 0) {
        CHECK(at + 1 == text.size());  // only the last quote ends it
        break;
      }
    }
    backslashes = text[at] == '\\' ? backslashes + 1 : 0;
    quoted.push_back(text[at]);
  }
  std::string out;
  backslashes = 0;
  for (std::size_t at = 0; at < quoted.size(); ++at) {
    if (quoted.compare(at, 2, "${") == 0) {
      CHECK(backslashes % 2 == 1);  // else OmegaConf would replace it
      out.resize(out.size() - backslashes + backslashes / 2);
    }
    backslashes = quoted[at] == '\\' ? backslashes + 1 : 0;
    out.push_back(quoted[at]);
  }
  return out;
}

std::string all_bytes_of_text() {
  std::string text("\t\n\r\f");
  for (char c = ' '; c < '\x7F'; ++c) text.push_back(c);
  return text + "\x7F\xC2\x80\xDF\xBF\xEF\xBF\xBF\xF4\x8F\xBF\xBF";
}

std::vector<std::string> texts() {
  std::vector<std::string> all = hostile_texts();
  all.insert(all.end(), {all_bytes_of_text(), "-x", "--load", "\\\\${a}", "\\'${b", "nan", "True", "a.b/c-d:1,2+3=@%"});
  return all;
}

}  // namespace

TEST_CASE("a shell gives back every text that was quoted for it") {
  std::string line;
  for (const std::string& text : texts()) line += cli::shell_quoted(text) + ' ';
  CHECK(through_shell("/bin/bash", line) == texts());
  CHECK(through_shell("/bin/sh", line) == texts());
  std::string bash;
  for (const std::string& text : texts()) bash += cli::bash_quoted(text) + ' ';
  CHECK(through_shell("/bin/bash", bash) == texts());
  CHECK(bash.find("\r\n") == std::string::npos);
}

TEST_CASE("a word that means nothing to a shell is left as it is") {
  CHECK(cli::shell_quoted("--tensor-model-parallel-size=2") == "--tensor-model-parallel-size=2");
  CHECK(cli::shell_quoted("/data/a_1.bin:2") == "/data/a_1.bin:2");
  CHECK(cli::shell_quoted("a b") == "'a b'");
  CHECK(cli::shell_quoted("") == "''");
}

TEST_CASE("a YAML reader gives back every text that was quoted for it") {
  for (const std::string& text : texts()) {
    CAPTURE(text);
    const Source source{"a.yaml", "key: " + cli::yaml_quoted(text) + "\n"};
    CHECK(std::count(source.text.begin(), source.text.end(), '\n') == 1);
    Diagnostics out;
    const auto root = readers::read_yaml(source, 0, out);
    REQUIRE(root.has_value());
    CHECK(root->entries.at(0).value.text == text);
    CHECK(root->entries.at(0).value.quoted);
  }
}

TEST_CASE("Kubernetes expands nothing in a text that was escaped for it") {
  CHECK(expanded("a$(X)b") == "aEXPANDEDb");
  for (const std::string& text : texts()) CHECK(expanded(cli::kubernetes_escaped(text)) == text);
}

TEST_CASE("Hydra and OmegaConf give back every text that was quoted for them") {
  for (const std::string& text : texts()) {
    CAPTURE(text);
    CHECK(through_hydra(cli::hydra_quoted(text)) == text);
  }
  CHECK(cli::hydra_quoted("mxfp8") == "mxfp8");
  for (const char* word : {"true", "False", "null", "NaN", "inf", "1e5", "12", ""})
    CHECK(cli::hydra_quoted(word) == '"' + std::string(word) + '"');
}

TEST_CASE("a comment stays on its line") {
  CHECK(cli::comment_text("a\nb\r\nc\xE2\x80\xA8"
                          "d") == "a b  c d");
  CHECK(cli::comment_text("\xC3\xBC") == "\xC3\xBC");
}
