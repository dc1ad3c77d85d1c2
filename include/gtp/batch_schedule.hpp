// The `step_batch_size_schedule` mini-language: text to a validated list of batch-size steps, with the place of every
// mistake. Divisibility by the data lanes is not decided here but in batch.hpp.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace gtp {

/// From `threshold_samples` consumed samples on, a global batch has `global_batch_size` samples.
struct ScheduleEntry {
  std::int64_t threshold_samples = 0;
  std::int64_t global_batch_size = 0;
  std::size_t text_index = 0;   ///< Which entry of the text this is, from 0; entries are sorted, the text need not be.
  std::size_t text_offset = 0;  ///< Bytes from the start of the text.
  std::size_t text_length = 0;
};

enum class ScheduleProblemKind : std::uint8_t {
  kEmpty,             ///< No entry at all.
  kFormat,            ///< An entry without `:`.
  kNumberFormat,      ///< Not a finite decimal number with an optional K, M, B or T.
  kNumberOverflow,    ///< A number that does not fit 64 bits; upstream itself gives up only beyond 1.8e308.
  kSeqLength,         ///< Thresholds are tokens, but `seq_length` is not positive.
  kFirstNotZero,      ///< The smallest threshold is not 0 samples.
  kNotIncreasing,     ///< Two thresholds are the same number of samples.
  kBatchNotPositive,  ///< A batch size that is not positive after truncation.
};

/// Offsets are bytes from the start of the schedule text. `part` is the smallest piece that is wrong: a number, or the
/// whole entry.
struct ScheduleProblem {
  ScheduleProblemKind kind{};
  std::size_t entry_index = 0;
  std::string entry;
  std::size_t entry_offset = 0;
  std::size_t part_offset = 0;
  std::size_t part_length = 0;
  /// The converted number, for kFirstNotZero and kNotIncreasing (samples), kBatchNotPositive and kSeqLength.
  std::optional<std::int64_t> value;
  std::optional<std::size_t> other_entry_index;  ///< kNotIncreasing: the earlier entry with the same threshold.
};

using ScheduleProblems = std::vector<ScheduleProblem>;

/// At least one entry, thresholds strictly increasing from 0, batches positive: parse_batch_schedule() sees to it.
class BatchSchedule {
 public:
  [[nodiscard]] std::span<const ScheduleEntry> entries() const noexcept { return entries_; }

  /// The index of the entry in force once `consumed_samples` samples are consumed; the first below zero.
  [[nodiscard]] std::size_t index_at(std::int64_t consumed_samples) const noexcept {
    const auto after = std::upper_bound(
        entries_.begin(), entries_.end(), consumed_samples,
        [](std::int64_t consumed, const ScheduleEntry& entry) { return consumed < entry.threshold_samples; });
    return after == entries_.begin() ? 0 : static_cast<std::size_t>(after - entries_.begin()) - 1;
  }

  /// The entry in force once `consumed_samples` samples are consumed.
  /// num_microbatches_calculator.py:558
  [[nodiscard]] const ScheduleEntry& schedule_at(std::int64_t consumed_samples) const noexcept {
    return entries_[index_at(consumed_samples)];
  }

 private:
  explicit BatchSchedule(std::vector<ScheduleEntry> entries) : entries_(std::move(entries)) {}
  friend std::optional<BatchSchedule> parse_batch_schedule(std::string_view text,
                                                           std::optional<std::int64_t> seq_length,
                                                           ScheduleProblems& problems);

  std::vector<ScheduleEntry> entries_;
};

namespace detail {

/// Rounds towards minus infinity, as Python's `//` does. `divisor` must be positive.
constexpr std::int64_t floor_quotient(std::int64_t dividend, std::int64_t divisor) noexcept {
  return dividend / divisor - (dividend % divisor < 0 ? 1 : 0);
}

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

/// The bytes of the separator that starts at `offset`: a comma, or one of the characters Python's `str.split()` splits
/// at, in UTF-8. 0 if there is none.
constexpr std::size_t separator_length(std::string_view text, std::size_t offset) noexcept {
  const auto byte = [&](std::size_t i) {
    return offset + i < text.size() ? static_cast<unsigned char>(text[offset + i]) : static_cast<unsigned char>(0);
  };
  const unsigned char first = byte(0);
  if (first == ',' || (first >= 0x09 && first <= 0x0D) || (first >= 0x1C && first <= 0x20)) return 1;
  if (first == 0xC2) return byte(1) == 0x85 || byte(1) == 0xA0 ? 2 : 0;
  if (first == 0xE1) return byte(1) == 0x9A && byte(2) == 0x80 ? 3 : 0;
  if (first == 0xE3) return byte(1) == 0x80 && byte(2) == 0x80 ? 3 : 0;
  if (first != 0xE2) return 0;
  if (byte(1) == 0x81) return byte(2) == 0x9F ? 3 : 0;
  const unsigned char last = byte(2);
  const bool space = (last >= 0x80 && last <= 0x8A) || last == 0xA8 || last == 0xA9 || last == 0xAF;
  return byte(1) == 0x80 && space ? 3 : 0;
}

struct TextPart {
  std::size_t offset = 0;
  std::size_t length = 0;
};

/// The next entry at or after `offset`; its length is 0 at the end of the text.
constexpr TextPart next_entry(std::string_view text, std::size_t offset) noexcept {
  while (offset < text.size()) {
    const std::size_t length = separator_length(text, offset);
    if (length == 0) break;
    offset += length;
  }
  std::size_t end = offset;
  while (end < text.size() && separator_length(text, end) == 0) ++end;
  return {offset, end - offset};
}

/// The power of ten of a K, M, B or T at the end of a number, as a factor; 1 if there is none.
constexpr double suffix_factor(std::string_view number) noexcept {
  switch (number.empty() ? '\0' : number.back()) {
    case 'K':
    case 'k':
      return 1e3;
    case 'M':
    case 'm':
      return 1e6;
    case 'B':
    case 'b':
      return 1e9;
    case 'T':
    case 't':
      return 1e12;
    default:
      return 1;
  }
}

/// Appends the digits at the start of `number` to `digits` and drops them from `number`; single underscores between
/// digits are left out. Returns whether there was a digit.
inline bool take_digits(std::string_view& number, std::string& digits) {
  std::size_t i = 0;
  while (i < number.size()) {
    const bool between =
        number[i] == '_' && i > 0 && i + 1 < number.size() && is_digit(number[i - 1]) && is_digit(number[i + 1]);
    if (!is_digit(number[i]) && !between) break;
    if (!between) digits += number[i];
    ++i;
  }
  number.remove_prefix(i);
  return i > 0;
}

/// Rewrites what Python's `float()` accepts as finite decimal (ASCII digits only) into what std::from_chars accepts.
inline std::optional<std::string> plain_decimal(std::string_view number) {
  std::string plain;
  const auto take_sign = [&] {
    if (number.empty() || (number.front() != '+' && number.front() != '-')) return;
    if (number.front() == '-' || !plain.empty()) plain += number.front();
    number.remove_prefix(1);
  };
  take_sign();
  bool has_digits = take_digits(number, plain);
  if (!number.empty() && number.front() == '.') {
    plain += '.';
    number.remove_prefix(1);
    has_digits = take_digits(number, plain) || has_digits;
  }
  if (!has_digits) return std::nullopt;
  if (!number.empty() && (number.front() == 'e' || number.front() == 'E')) {
    plain += 'e';
    number.remove_prefix(1);
    take_sign();
    if (!take_digits(number, plain)) return std::nullopt;
  }
  if (!number.empty()) return std::nullopt;
  return plain;
}

/// Whether a plain decimal that is out of the range of a double is too near zero rather than too large: the place of
/// its first digit that is not zero, counted from the point, decides.
inline bool underflows(std::string_view plain) noexcept {
  const std::size_t e = plain.find('e');
  const std::string_view mantissa = plain.substr(0, e);
  const std::size_t leading = mantissa.find_first_of("123456789");
  if (leading == std::string_view::npos) return true;
  std::string_view digits = e == std::string_view::npos ? "0" : plain.substr(e + 1);
  const bool negative = digits.front() == '-';
  if (digits.front() == '+') digits.remove_prefix(1);
  std::int64_t exponent = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), exponent).ec != std::errc{}) return negative;
  const std::size_t point = std::min(mantissa.find('.'), mantissa.size());
  return exponent < static_cast<std::int64_t>(leading) - static_cast<std::int64_t>(point);
}

struct ScheduleNumber {
  std::int64_t value = 0;
  std::optional<ScheduleProblemKind> problem;
};

/// A schedule number: decimal, times its suffix in double arithmetic, truncated towards zero; so `12.5829M` and every
/// other fraction rounds as it does upstream.
/// num_microbatches_calculator.py:481
inline ScheduleNumber parse_schedule_number(std::string_view number) {
  const double factor = suffix_factor(number);
  if (factor > 1) number.remove_suffix(1);
  const std::optional<std::string> plain = plain_decimal(number);
  if (!plain) return {0, ScheduleProblemKind::kNumberFormat};
  double value = 0;
  const std::from_chars_result read = std::from_chars(plain->data(), plain->data() + plain->size(), value);
  if (read.ec == std::errc::result_out_of_range) {
    if (!underflows(*plain)) return {0, ScheduleProblemKind::kNumberOverflow};
    value = 0;
  }
  constexpr double kTwoTo63 = 9223372036854775808.0;
  const double scaled = value * factor;
  if (!(std::fabs(scaled) < kTwoTo63)) return {0, ScheduleProblemKind::kNumberOverflow};
  return {static_cast<std::int64_t>(scaled), std::nullopt};
}

/// One pass over a schedule text: what its entries say, and where they are for the checks that follow.
struct ScheduleReader {
  std::string_view text;
  std::optional<std::int64_t> seq_length;
  ScheduleProblems& problems;
  std::vector<TextPart> places;
  std::vector<ScheduleEntry> entries;

  /// Reports on the part of entry `index` before its first colon, after it, or on the whole of it.
  enum class Part : std::uint8_t { kThreshold, kBatch, kEntry };

  void report(ScheduleProblemKind kind, std::size_t index, Part part, std::optional<std::int64_t> value = {},
              std::optional<std::size_t> other = {}) {
    const TextPart place = index < places.size() ? places[index] : TextPart{};
    const std::string_view entry = text.substr(place.offset, place.length);
    const std::size_t colon = entry.find(':');
    TextPart spot = place;
    if (part == Part::kThreshold) spot.length = colon;
    if (part == Part::kBatch) spot = {place.offset + colon + 1, place.length - colon - 1};
    problems.push_back({kind, index, std::string(entry), place.offset, spot.offset, spot.length, value, other});
  }

  std::optional<std::int64_t> read_number(std::string_view number, Part part) {
    const ScheduleNumber parsed = parse_schedule_number(number);
    if (!parsed.problem) return parsed.value;
    report(*parsed.problem, places.size() - 1, part);
    return std::nullopt;
  }

  void read_entry(TextPart place) {
    places.push_back(place);
    const std::string_view entry = text.substr(place.offset, place.length);
    const std::size_t index = places.size() - 1;
    const std::size_t colon = entry.find(':');
    if (colon == std::string_view::npos) return report(ScheduleProblemKind::kFormat, index, Part::kEntry);
    const std::optional<std::int64_t> threshold = read_number(entry.substr(0, colon), Part::kThreshold);
    const std::optional<std::int64_t> batch = read_number(entry.substr(colon + 1), Part::kBatch);
    if (!threshold || !batch) return;
    entries.push_back(
        {seq_length ? floor_quotient(*threshold, *seq_length) : *threshold, *batch, index, place.offset, place.length});
  }

  void check_thresholds() {
    const ScheduleEntry& first = entries.front();
    if (first.threshold_samples != 0) {
      report(ScheduleProblemKind::kFirstNotZero, first.text_index, Part::kThreshold, first.threshold_samples);
    }
    for (std::size_t i = 1; i < entries.size(); ++i) {
      if (entries[i].threshold_samples > entries[i - 1].threshold_samples) continue;
      report(ScheduleProblemKind::kNotIncreasing, entries[i].text_index, Part::kThreshold, entries[i].threshold_samples,
             entries[i - 1].text_index);
    }
  }

  void check_batches() {
    for (const ScheduleEntry& entry : entries) {
      if (entry.global_batch_size > 0) continue;
      report(ScheduleProblemKind::kBatchNotPositive, entry.text_index, Part::kBatch, entry.global_batch_size);
    }
  }
};

}  // namespace detail

/// Reads `THRESHOLD:BATCH` entries separated by spaces or commas, in any order. Thresholds are tokens when `seq_length`
/// is given (floor-divided by it) and samples otherwise. Appends every problem, the one upstream raises first before
/// the others, and returns nullopt if there is one. Digits outside ASCII, which Python's float() takes, are refused.
/// num_microbatches_calculator.py:502
inline std::optional<BatchSchedule> parse_batch_schedule(std::string_view text, std::optional<std::int64_t> seq_length,
                                                         ScheduleProblems& problems) {
  const std::size_t known_problems = problems.size();
  detail::ScheduleReader reader{text, seq_length, problems, {}, {}};
  if (seq_length && *seq_length <= 0) {
    reader.report(ScheduleProblemKind::kSeqLength, 0, detail::ScheduleReader::Part::kEntry, *seq_length);
    return std::nullopt;
  }
  std::size_t offset = 0;
  while (true) {
    const detail::TextPart place = detail::next_entry(text, offset);
    if (place.length == 0) break;
    reader.read_entry(place);
    offset = place.offset + place.length;
  }
  if (reader.places.empty()) {
    reader.report(ScheduleProblemKind::kEmpty, 0, detail::ScheduleReader::Part::kEntry);
    return std::nullopt;
  }
  std::stable_sort(reader.entries.begin(), reader.entries.end(), [](const ScheduleEntry& a, const ScheduleEntry& b) {
    return a.threshold_samples < b.threshold_samples;
  });
  // An unreadable entry may be the one that starts at 0, so thresholds are compared only when all were read.
  if (reader.entries.size() == reader.places.size()) reader.check_thresholds();
  reader.check_batches();
  if (problems.size() != known_problems) return std::nullopt;
  return BatchSchedule(std::move(reader.entries));
}

}  // namespace gtp
