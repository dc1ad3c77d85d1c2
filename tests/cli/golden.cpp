// What `check` says about each rule, byte by byte, but for the list of what was not checked: it names every other rule
// (render_text.cpp and engine/check.cpp test it). GTP_UPDATE_GOLDEN=1 rewrites the expected files.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtp/rules.hpp>

#include "tests/cli/gtplan.hpp"
#include "tools/app.hpp"

namespace {

namespace fs = std::filesystem;
using gtp::test::read_file;

const fs::path kGolden = fs::path(GTP_SOURCE_ROOT) / "tests" / "cli" / "golden";

std::vector<fs::path> cases() {
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(kGolden))
    if (entry.is_directory()) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

struct Checked {
  int exit;
  std::string report, error;
};

/// Standard error goes to a file while this lives.
class ErrorsTo {
 public:
  explicit ErrorsTo(const fs::path& path) : before_(::dup(STDERR_FILENO)) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ::dup2(file, STDERR_FILENO);
    ::close(file);
  }
  ErrorsTo(const ErrorsTo&) = delete;
  ErrorsTo& operator=(const ErrorsTo&) = delete;
  ~ErrorsTo() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
  }

 private:
  int before_;
};

/// In this process, as if it had been started in the folder: to start the program takes far longer than to check one
/// file. Other tests start it (exit_codes.cpp, reports.cpp).
Checked run_in(const fs::path& folder, std::vector<std::string> words) {
  const gtp::test::Folder out;
  const fs::path report = out.path() / "report", before = fs::current_path();
  words.insert(words.begin() + 1, {"--output", report.string()});  // before any `--`
  const fs::path errors = out.path() / "errors";
  fs::current_path(folder);
  const int exit = [&] {
    const ErrorsTo file(errors);
    return gtp::cli::run(std::move(words));
  }();
  fs::current_path(before);
  return {exit, read_file(report), read_file(errors)};
}

/// `check --format FORMAT`, the lines of `args`, then `config.*`.
std::vector<std::string> words_of(const fs::path& folder, const std::string& format) {
  std::vector<std::string> words{"check", "--format", format};
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().stem() == "config") words.push_back(entry.path().filename());
  std::ifstream args(folder / "args");
  for (std::string line; std::getline(args, line);) words.push_back(line);
  return words;
}

/// `text` without the line of a text report, or the array of a JSON report, that lists what was not checked.
std::string without_not_checked(const std::string& text) {
  std::istringstream lines(text);
  std::string kept;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    const bool opens = line.starts_with("      \"not_checked\": [");
    if (!inside && !opens && !line.starts_with("  not checked: ")) kept += line + "\n";
    inside = (inside || opens) && !line.ends_with("],");
  }
  return kept;
}

void compare(const fs::path& folder, const char* file, const std::string& output) {
  const std::string actual = without_not_checked(output);
  if (std::getenv("GTP_UPDATE_GOLDEN") != nullptr) gtp::test::write_file(folder / file, actual);
  CHECK(read_file(folder / file) == actual);
}

/// The code that a folder is for: `GTP003` of `GTP003-expert`.
std::string code_of(const fs::path& folder) {
  const std::string name = folder.filename();
  return name.substr(0, name.find('-'));
}

bool reports(const nlohmann::json& report, const std::string& code) {
  for (const auto& config : report.at("configs"))
    for (const auto& diagnostic : config.at("diagnostics"))
      if (diagnostic.at("code") == code) return true;
  return false;
}

}  // namespace

TEST_CASE("every golden case is reported as its expected files say") {
  for (const fs::path& folder : cases()) {
    CAPTURE(folder.filename().string());
    const Checked text = run_in(folder, words_of(folder, "text")), json = run_in(folder, words_of(folder, "json"));
    compare(folder, "expected.txt", text.report);
    compare(folder, "expected.json", json.report);
    CHECK(text.exit == json.exit);
    CHECK(text.error.empty());
    CHECK(json.error.empty());
  }
}

TEST_CASE("the expected report of a golden case contains the code it is for") {
  for (const fs::path& folder : cases()) {
    CAPTURE(folder.filename().string());
    const nlohmann::json report = nlohmann::json::parse(read_file(folder / "expected.json"), nullptr, false);
    REQUIRE(!report.is_discarded());
    CHECK(reports(report, code_of(folder)));
  }
}

TEST_CASE("every rule has a golden case") {
  std::vector<std::string> codes;
  for (const fs::path& folder : cases()) codes.push_back(code_of(folder));
  for (const gtp::Rule* rule : gtp::all_rules()) {
    CAPTURE(rule->code);
    CHECK(std::find(codes.begin(), codes.end(), rule->code) != codes.end());
  }
}

TEST_CASE("an offered fix, applied, removes its error and adds none") {
  int fixes = 0;
  for (const fs::path& folder : cases()) {
    CAPTURE(folder.filename().string());
    const nlohmann::json before = nlohmann::json::parse(read_file(folder / "expected.json"));
    for (const nlohmann::json& diagnostic : before.at("configs").at(0).at("diagnostics")) {
      if (diagnostic.at("fix").empty()) continue;
      ++fixes;
      std::vector<std::string> words = words_of(folder, "json");
      for (const nlohmann::json& fix : diagnostic.at("fix")) {
        const nlohmann::json& value = fix.at("value");
        words.push_back("--set");
        words.push_back(fix.at("option").get<std::string>() + "=" +
                        (value.is_string() ? value.get<std::string>() : value.dump()));
      }
      const nlohmann::json after = nlohmann::json::parse(run_in(folder, words).report);
      CHECK(!reports(after, diagnostic.at("code").get<std::string>()));
      CHECK(after.at("error_count").get<int>() + after.at("warning_count").get<int>() <
            before.at("error_count").get<int>() + before.at("warning_count").get<int>());
    }
  }
  CHECK(fixes >= 5);
}
