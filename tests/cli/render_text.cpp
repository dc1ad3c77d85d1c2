// The text report: places, marks, and what a terminal is spared.
#include <doctest/doctest.h>

#include <string>

#include "tests/cli/gtplan.hpp"

namespace {

using gtp::test::Folder;
using gtp::test::gtplan;

std::string report(const Folder& folder, std::string_view text, std::vector<std::string> more = {}) {
  folder.file("a.json", text);
  std::vector<std::string> words{"check", "a.json"};
  words.insert(words.end(), more.begin(), more.end());
  return gtplan(std::move(words), folder.path().string()).output;
}

bool says(const std::string& text, std::string_view part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("primary and related places are shown in the order of lines with gaps marked") {
  const Folder folder;
  const std::string text = report(folder,
                                  "{\n"
                                  "  \"tensor_parallel_num_weight_shards\": 6,\n"
                                  "  \"seed\": 1,\n"
                                  "  \"micro_batch_size\": 1,\n"
                                  "  \"tensor_model_parallel_size\": 4\n"
                                  "}\n");
  CHECK(says(text,
             "error[GTP003]: weight shards must be a multiple of the tensor-parallel size\n"
             "   --> a.json:2:40\n"
             "    |\n"
             "  2 |   \"tensor_parallel_num_weight_shards\": 6,\n"
             "    |                                        ^ 6 is not a multiple of 4\n"
             "...\n"
             "  5 |   \"tensor_model_parallel_size\": 4\n"
             "    |                                 - tensor-parallel size\n"
             "    |\n"
             "    = help: "));
  CHECK(says(text, "\na.json: invalid (1 error)\n"));
}

TEST_CASE("tabs and wide characters keep marks under their values") {
  const Folder folder;
  const std::string text =
      report(folder, "{\"data_path\": [\"\xE6\xBC\xA2\xE5\xAD\x97\"],\t\"tensor_model_parallel_sise\": 4}\n");
  CHECK(says(text,
             "  1 | {\"data_path\": [\"\xE6\xBC\xA2\xE5\xAD\x97\"],    \"tensor_model_parallel_sise\": 4}\n"
             "    |                            ^^^^^^^^"));
  CHECK(says(text, "did you mean `tensor_model_parallel_size`?"));
}

TEST_CASE("of a long line only the part around the place is shown") {
  const Folder folder;
  const std::string padding(5000, ' ');
  const std::string text =
      report(folder, "{" + padding + "\"tensor_model_parallel_sise\": 4," + padding + "\"seed\": 1}\n");
  CHECK(says(text, "\"tensor_model_parallel_sise\": 4,"));
  CHECK(says(text, "  1 | ..."));
  CHECK(text.size() < 2000);
}

TEST_CASE("control characters of an input do not reach the terminal") {
  const Folder folder;
  const std::string text = report(folder, "{\"a\\u001b[31mb\\u202ec\": 4}\n", {"--set", "x\x1b]0;y=1"});
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find("\xE2\x80\xAE") == std::string::npos);
}

TEST_CASE("colour is used only when asked for or on a terminal") {
  const Folder folder;
  constexpr std::string_view kText = "{\"tensor_model_parallel_size\": 0}";
  CHECK(report(folder, kText).find('\x1b') == std::string::npos);
  CHECK(report(folder, kText, {"--color", "always"}).find("\x1b[1;31merror[GTP001]\x1b[0m") != std::string::npos);
  CHECK(report(folder, kText, {"--color=never"}).find('\x1b') == std::string::npos);
}

TEST_CASE("a place in another source has a block of its own") {
  const Folder folder;
  const std::string text =
      report(folder, "{\"tensor_model_parallel_size\": 4}\n", {"--set", "tensor_parallel_num_weight_shards=6"});
  CHECK(says(text, "   --> <command line>:1:41\n"));
  CHECK(says(text, "   --> a.json:1:32\n"));
}

TEST_CASE("the concise format has a line for each diagnostic") {
  const Folder folder;
  const std::string text =
      report(folder, "{\"tensor_model_parallel_size\": 4,\n\"tensor_parallel_num_weight_shards\": 6}\n",
             {"--format", "concise"});
  CHECK(text ==
        "a.json:2:38: error[GTP003] weight shards must be a multiple of the tensor-parallel size: 6 is not a multiple "
        "of 4\n");
}

TEST_CASE("a valid configuration shows what follows from it and what was not checked") {
  const Folder folder;
  const std::string text =
      report(folder, "{\"tensor_model_parallel_size\": 2, \"context_parallel_size\": 2}", {"--world-size", "16"});
  CHECK(says(text, "a.json: valid\n"));
  CHECK(says(text, "\n  data_parallel_size "));
  CHECK(says(text, "\n  not checked: "));
  CHECK(says(text, "experimental"));
}
