#include "gtp/batch_schedule.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>

namespace {

using gtp::ScheduleProblemKind;

/// `threshold:batch` entries in samples, or `problem N` with the kind of the first problem.
std::string read(std::string_view text, std::optional<std::int64_t> seq_length = std::nullopt) {
  gtp::ScheduleProblems problems;
  const std::optional<gtp::BatchSchedule> schedule = gtp::parse_batch_schedule(text, seq_length, problems);
  if (!schedule) return fmt::format("problem {}", static_cast<int>(problems.front().kind));
  std::string list;
  for (const gtp::ScheduleEntry& entry : schedule->entries()) {
    list += fmt::format("{}{}:{}", list.empty() ? "" : " ", entry.threshold_samples, entry.global_batch_size);
  }
  return list;
}

std::string problem(ScheduleProblemKind kind) { return fmt::format("problem {}", static_cast<int>(kind)); }

gtp::ScheduleProblems problems_of(std::string_view text, std::optional<std::int64_t> seq_length = std::nullopt) {
  gtp::ScheduleProblems problems;
  CHECK_FALSE(gtp::parse_batch_schedule(text, seq_length, problems));
  return problems;
}

}  // namespace

TEST_CASE("thresholds are tokens with a sequence length and samples without") {
  CHECK(read("0:768 250B:1536 500B:3072 750B:6144", 4096) == "0:768 61035156:1536 122070312:3072 183105468:6144");
  CHECK(read("0:1536 12.5829M:3072", 8192) == "0:1536 1535:3072");
  CHECK(read("0:8 4.1T:16 8.7b:9", 8192) == "0:8 1062011:9 500488281:16");
  CHECK(read("0:768 61035156250:1536") == "0:768 61035156250:1536");
  CHECK(read("1023:8 1024:16", 1024) == "0:8 1:16");
}

TEST_CASE("fractions of a suffix round as a product of doubles does") {
  CHECK(read("0:8 1.001K:9 2.0019K:10 4.35K:11") == "0:8 1000:9 2001:10 4350:11");
  CHECK(read("0:8 1.1T:9 2.2T:10 1.005B:11") == "0:8 1004999999:11 1100000000000:9 2200000000000:10");
  CHECK(read("0:8 0.57M:9 1.15M:10 2.3M:11") == "0:8 570000:9 1150000:10 2300000:11");
  CHECK(read("0:8 0.0029K:9") == "0:8 2:9");
  CHECK(read("0:1.1k 8.2k:2.3K") == "0:1100 8200:2300");
}

TEST_CASE("numbers take every form that a Python float takes") {
  CHECK(read("0:8.9 1e3:1_6") == "0:8 1000:16");
  CHECK(read("-0.5:8 +4.:9") == "0:8 4:9");
  CHECK(read("0e99999999999999999999:8 5E-1k:.9e1") == "0:8 500:9");
  CHECK(read("1e-400:8") == "0:8");
  CHECK(read("0." + std::string(400, '0') + "1:8 0." + std::string(400, '0') + "1e402:9") == "0:8 10:9");
  for (const std::string_view number : {"", "x", "K", "1kk", "1__0", "_1", "1_", "1._5", "1e", "e5", "+-1", "0x10", ".",
                                        "nan", "inf", "8K8", "1:2", "1G", "\xff"}) {
    CAPTURE(number);
    CHECK(read("0:" + std::string(number)) == problem(ScheduleProblemKind::kNumberFormat));
  }
}

TEST_CASE("entries are separated by commas and by Unicode white space and sorted by threshold") {
  CHECK(read("  0:8 ,\t5e-1k:16,\n") == "0:8 500:16");
  CHECK(read("16:32,0:8") == "0:8 16:32");
  CHECK(read("0:8\xc2\xa0"
             "4:9\xe2\x80\x83"
             "5:10\xe3\x80\x80"
             "6:11\x1c"
             "7:12") == "0:8 4:9 5:10 6:11 7:12");
  CHECK(read("0:8\xe2\x80\x8b"
             "4:9") == problem(ScheduleProblemKind::kNumberFormat));
}

TEST_CASE("a number beyond 64 bits is a problem and never wraps") {
  CHECK(read("0:9223372036854774784") == "0:9223372036854774784");
  for (const std::string_view number :
       {"9223372036854775807", "9223372036854775808", "1e19", "-1e19", "9.3e6T", "1e309", "1e99999999999999999999"}) {
    CAPTURE(number);
    CHECK(read("0:" + std::string(number)) == problem(ScheduleProblemKind::kNumberOverflow));
    CHECK(read("0:8 " + std::string(number) + ":9", 8192) == problem(ScheduleProblemKind::kNumberOverflow));
  }
  CHECK(read("0:1" + std::string(400, '0') + "e-50") == problem(ScheduleProblemKind::kNumberOverflow));
}

TEST_CASE("a schedule without entries or with a sequence length that is not positive is refused") {
  CHECK(read("") == problem(ScheduleProblemKind::kEmpty));
  CHECK(read(" ,\n") == problem(ScheduleProblemKind::kEmpty));
  CHECK(read("0:8", 0) == problem(ScheduleProblemKind::kSeqLength));
  CHECK(problems_of("0:8", -4).front().value == -4);
}

TEST_CASE("an entry without a colon is named with its index and place") {
  const gtp::ScheduleProblems problems = problems_of("0:768, 250B 500B:x");
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].kind == ScheduleProblemKind::kFormat);
  CHECK(problems[0].entry_index == 1);
  CHECK(problems[0].entry == "250B");
  CHECK(problems[0].entry_offset == 7);
  CHECK(problems[0].part_offset == 7);
  CHECK(problems[0].part_length == 4);
  CHECK(problems[1].kind == ScheduleProblemKind::kNumberFormat);
  CHECK(problems[1].entry_index == 2);
  CHECK(problems[1].entry == "500B:x");
  CHECK(problems[1].entry_offset == 12);
  CHECK(problems[1].part_offset == 17);
  CHECK(problems[1].part_length == 1);
}

TEST_CASE("a schedule must start at sample zero") {
  const gtp::ScheduleProblems problems = problems_of("20:16 5:8");
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].kind == ScheduleProblemKind::kFirstNotZero);
  CHECK(problems[0].entry_index == 1);
  CHECK(problems[0].value == 5);
  CHECK(problems[0].part_offset == 6);
  CHECK(problems[0].part_length == 1);
  CHECK(problems_of("-1:8", 1024)[0].value == -1);
  CHECK(problems_of("-1025:8", 1024)[0].value == -2);
}

TEST_CASE("thresholds that become the same sample are refused") {
  const gtp::ScheduleProblems problems = problems_of("0:8 2048:9 3071:10 0.0:11", 1024);
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].kind == ScheduleProblemKind::kNotIncreasing);
  CHECK(problems[0].entry_index == 3);
  CHECK(problems[0].other_entry_index == 0);
  CHECK(problems[1].entry_index == 2);
  CHECK(problems[1].other_entry_index == 1);
  CHECK(problems[1].value == 2);
  CHECK(read("0:8 0.29K:16 290:32") == problem(ScheduleProblemKind::kNotIncreasing));
}

TEST_CASE("a batch that is not positive once truncated is refused") {
  const gtp::ScheduleProblems problems = problems_of("0:0.9 4:-8");
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].kind == ScheduleProblemKind::kBatchNotPositive);
  CHECK(problems[0].value == 0);
  CHECK(problems[0].part_offset == 2);
  CHECK(problems[0].part_length == 3);
  CHECK(problems[1].value == -8);
}

TEST_CASE("an unreadable entry hides no problem of another entry and adds none") {
  const gtp::ScheduleProblems problems = problems_of("O:8 16:0");
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].kind == ScheduleProblemKind::kNumberFormat);
  CHECK(problems[1].kind == ScheduleProblemKind::kBatchNotPositive);
}

TEST_CASE("an entry is in force from its threshold on") {
  gtp::ScheduleProblems problems;
  const auto schedule = gtp::parse_batch_schedule("100:16 0:8 200:32", std::nullopt, problems);
  REQUIRE(schedule);
  CHECK(schedule->schedule_at(-5).global_batch_size == 8);
  CHECK(schedule->schedule_at(0).global_batch_size == 8);
  CHECK(schedule->schedule_at(99).global_batch_size == 8);
  CHECK(schedule->schedule_at(100).global_batch_size == 16);
  CHECK(schedule->schedule_at(199).global_batch_size == 16);
  CHECK(schedule->schedule_at(INT64_MAX).global_batch_size == 32);
  CHECK(schedule->index_at(200) == 2);
  const gtp::ScheduleEntry& middle = schedule->entries()[1];
  CHECK(middle.text_index == 0);
  CHECK(middle.text_length == 6);
  CHECK(schedule->entries()[2].text_offset == 11);
}

TEST_CASE("any bytes end in a schedule or in problems that point into the text") {
  std::mt19937_64 random(20260822);
  constexpr std::string_view kAlphabet = "0123456789.:, eE+-_KMBT\xc2\xa0\xe2\x80\x83\xff\0x";
  for (int round = 0; round < 20000; ++round) {
    std::string text(random() % 24, ' ');
    for (char& c : text) c = kAlphabet[random() % kAlphabet.size()];
    gtp::ScheduleProblems problems;
    const auto schedule = gtp::parse_batch_schedule(text, std::nullopt, problems);
    CHECK(schedule.has_value() == problems.empty());
    for (const gtp::ScheduleProblem& found : problems) {
      CHECK(text.substr(found.entry_offset, found.entry.size()) == found.entry);
      CHECK(found.part_offset >= found.entry_offset);
      CHECK(found.part_offset + found.part_length <= found.entry_offset + found.entry.size());
    }
  }
}
