#include <doctest/doctest.h>
#include <gtp/layer_split.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/data.hpp"

using namespace gtp;
using Json = nlohmann::json;
using Names = std::vector<std::string>;
using Table = std::vector<std::vector<std::int64_t>>;

namespace {

/// Rule ids in the order split, layout, pattern.
Names names_of(const LayerSplitOptions& options) {
  const LayerSplitResult result = split_layers(options);
  Names names;
  for (const SplitFinding& finding : result.findings) names.emplace_back(rule_id(finding.problem));
  for (const LayoutFinding& finding : result.layout_findings) names.emplace_back(rule_id(finding.problem));
  for (const HybridFinding& finding : result.hybrid_findings) names.emplace_back(rule_id(finding.problem));
  CHECK(result.refused() != result.split.has_value());
  return names;
}

/// Fails on any finding, silent ones too.
Table table_of(const LayerSplitOptions& options) {
  CHECK(names_of(options) == Names{});
  const LayerSplitResult result = split_layers(options);
  REQUIRE(result.split);
  return result.split->table();
}

std::optional<std::int64_t> vpp_of(const LayerSplitOptions& options) {
  return split_layers(options).virtual_pipeline_model_parallel_size;
}

using Arguments = std::map<std::string, std::string>;

/// The `--key: value` lines of a Megatron test file; the last of a key wins.
Arguments arguments_of(const std::filesystem::path& file) {
  Arguments arguments;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t begin = line.find_first_not_of(' ');
    const std::size_t colon = line.find(": ");
    if (begin == std::string::npos || colon == std::string::npos || line.compare(begin, 2, "--") != 0) continue;
    const std::string value = line.substr(colon + 2);
    arguments[line.substr(begin + 2, colon - begin - 2)] = value.substr(0, value.find_last_not_of(" \r") + 1);
  }
  return arguments;
}

/// The views in the options look into `arguments`.
LayerSplitOptions options_of(const Arguments& arguments) {
  const auto number = [&](const char* key) -> std::optional<std::int64_t> {
    const auto found = arguments.find(key);
    return found == arguments.end() ? std::nullopt : std::optional<std::int64_t>(std::stoll(found->second));
  };
  const auto text = [&](const char* key) -> std::optional<std::string_view> {
    const auto found = arguments.find(key);
    return found == arguments.end() ? std::nullopt : std::optional<std::string_view>(found->second);
  };
  const auto flag = [&](const char* key) { return text(key) == "true"; };
  LayerSplitOptions options;
  options.num_layers = number(arguments.contains("num-layers") ? "num-layers" : "encoder-num-layers");
  options.pipeline_model_parallel_size = number("pipeline-model-parallel-size").value_or(1);
  options.num_layers_per_virtual_pipeline_stage = number("num-layers-per-virtual-pipeline-stage");
  options.num_virtual_stages_per_pipeline_rank = number("num-virtual-stages-per-pipeline-rank");
  options.decoder_first_pipeline_num_layers = number("decoder-first-pipeline-num-layers");
  options.decoder_last_pipeline_num_layers = number("decoder-last-pipeline-num-layers");
  options.account_for_embedding_in_pipeline_split = flag("account-for-embedding-in-pipeline-split");
  options.account_for_loss_in_pipeline_split = flag("account-for-loss-in-pipeline-split");
  options.overlap_p2p_comm = !flag("no-overlap-p2p-communication");
  options.mtp_num_layers = number("mtp-num-layers");
  options.pipeline_model_parallel_layout = text("pipeline-model-parallel-layout");
  options.hybrid_layer_pattern = text("hybrid-layer-pattern");
  return options;
}

}  // namespace

TEST_CASE("every job of the corpus gets upstream's layers on every stage") {
  const auto derived = test::shared_data("corpus_derived.json");
  const auto corpus = test::shared_data("corpus");
  if (!derived || !corpus) {
    MESSAGE("skipped, the shared data is not there");
    return;
  }
  std::ifstream stream(*derived);
  int compared = 0;
  for (const Json& row : Json::parse(stream)) {
    const auto file = row["file"].get<std::string>();
    CAPTURE(file);
    const Arguments arguments = arguments_of(*corpus / file);
    const LayerSplitResult result = split_layers(options_of(arguments));
    CHECK_FALSE(result.refused());
    if (!row["derived"].contains("layers_per_stage")) continue;
    REQUIRE(result.split);
    CHECK(Json(result.split->table()) == row["derived"]["layers_per_stage"]);
    ++compared;
  }
  CHECK(compared == 109);
}

TEST_CASE("layers are cut evenly over ranks and chunks") {
  CHECK(table_of({.num_layers = 24}) == Table{{24}});
  CHECK(table_of({.num_layers = 24, .pipeline_model_parallel_size = 4}) == Table{{6}, {6}, {6}, {6}});
  const LayerSplitOptions by_layers{
      .num_layers = 24, .pipeline_model_parallel_size = 4, .num_layers_per_virtual_pipeline_stage = 2};
  CHECK(table_of(by_layers) == Table(4, {2, 2, 2}));
  CHECK(vpp_of(by_layers) == 3);
  const LayerSplitOptions by_stages{
      .num_layers = 24, .pipeline_model_parallel_size = 4, .num_virtual_stages_per_pipeline_rank = 2};
  CHECK(table_of(by_stages) == Table(4, {3, 3}));
  CHECK(vpp_of(by_stages) == 2);
}

TEST_CASE("a VPP of one is no VPP") {
  CHECK(vpp_of({.num_layers = 8, .num_virtual_stages_per_pipeline_rank = 1}) == std::nullopt);
  CHECK(vpp_of({.num_layers = 8, .virtual_pipeline_model_parallel_size = 1}) == std::nullopt);
  CHECK(vpp_of({.num_layers = 8, .pipeline_model_parallel_size = 2, .num_layers_per_virtual_pipeline_stage = 4}) ==
        std::nullopt);
  CHECK(table_of({.num_layers = 8, .num_virtual_stages_per_pipeline_rank = 1}) == Table{{8}});
  CHECK(vpp_of({.num_layers = 2, .pipeline_model_parallel_layout = "EttL"}) == std::nullopt);
}

TEST_CASE("the first and the last stage may have a size of their own") {
  CHECK(table_of({.num_layers = 12,
                  .pipeline_model_parallel_size = 4,
                  .decoder_first_pipeline_num_layers = 2,
                  .decoder_last_pipeline_num_layers = 2}) == Table{{2}, {4}, {4}, {2}});
  CHECK(table_of({.num_layers = 61, .pipeline_model_parallel_size = 4, .decoder_last_pipeline_num_layers = 13}) ==
        Table{{16}, {16}, {16}, {13}});
  CHECK(table_of({.num_layers = 32, .pipeline_model_parallel_size = 2, .decoder_first_pipeline_num_layers = 1}) ==
        Table{{1}, {31}});
  CHECK(table_of({.num_layers = 5, .decoder_first_pipeline_num_layers = 5}) == Table{{5}});
  CHECK(table_of({.num_layers = 16,
                  .pipeline_model_parallel_size = 3,
                  .num_virtual_stages_per_pipeline_rank = 2,
                  .decoder_first_pipeline_num_layers = 4}) == Table{{2, 2}, {3, 3}, {3, 3}});
}

TEST_CASE("embedding and loss may take a layer's slot") {
  const LayerSplitOptions options{.num_layers = 6,
                                  .pipeline_model_parallel_size = 4,
                                  .num_virtual_stages_per_pipeline_rank = 2,
                                  .account_for_embedding_in_pipeline_split = true,
                                  .account_for_loss_in_pipeline_split = true};
  CHECK(table_of(options) == Table{{0, 1}, {1, 1}, {1, 1}, {1, 0}});
  CHECK(table_of({.num_layers = 36, .account_for_embedding_in_pipeline_split = true}) == Table{{36}});
  CHECK(table_of({.num_layers = 1,
                  .account_for_embedding_in_pipeline_split = true,
                  .account_for_loss_in_pipeline_split = true}) == Table{{1}});
}

TEST_CASE("a layout places the layers itself") {
  const LayerSplitOptions options{.num_layers = 14,
                                  .pipeline_model_parallel_size = 4,
                                  .mtp_num_layers = 1,
                                  .pipeline_model_parallel_layout = "Et*2|(tt|)*5t|tmL"};
  CHECK(table_of(options) == Table{{2, 2}, {2, 2}, {2, 1}, {2, 1}});
  CHECK(vpp_of(options) == 2);
}

TEST_CASE("a pattern places the layers and overrides their number") {
  const LayerSplitOptions piped{
      .num_layers = 99, .pipeline_model_parallel_size = 2, .hybrid_layer_pattern = "M-|M*-||M/M"};
  CHECK(table_of(piped) == Table{{2, 0}, {3, 1}});
  CHECK(vpp_of(piped) == 2);
  CHECK(split_layers(piped).num_layers == 6);
  CHECK(table_of({.pipeline_model_parallel_size = 2, .hybrid_layer_pattern = "M*M-M*M-"}) == Table{{4}, {4}});
  CHECK(table_of({.pipeline_model_parallel_size = 2,
                  .decoder_first_pipeline_num_layers = 3,
                  .hybrid_layer_pattern = "M*M-M*M-"}) == Table{{3}, {5}});
  CHECK(vpp_of({.pipeline_model_parallel_size = 2, .hybrid_layer_pattern = "MM"}) == std::nullopt);
}

TEST_CASE("every stage begins where the one before it ends") {
  for (const LayerSplitOptions& options :
       {LayerSplitOptions{.num_layers = 6,
       .pipeline_model_parallel_size = 4,
       .num_virtual_stages_per_pipeline_rank = 2,
       .account_for_embedding_in_pipeline_split = true,
       .account_for_loss_in_pipeline_split = true},
        LayerSplitOptions{.num_layers = 20,
        .pipeline_model_parallel_size = 4,
        .num_virtual_stages_per_pipeline_rank = 2,
        .decoder_first_pipeline_num_layers = 2,
        .decoder_last_pipeline_num_layers = 6},
        LayerSplitOptions{.pipeline_model_parallel_size = 2, .hybrid_layer_pattern = "M-|M*-||M"}}) {
    const LayerSplit split = *split_layers(options).split;
    std::int64_t next = 0;
    for (std::int64_t chunk = 0; chunk < split.chunks(); ++chunk) {
      for (std::int64_t rank = 0; rank < split.pipeline_model_parallel_size(); ++rank) {
        CHECK(split.layers_before(rank, chunk) == next);
        next += split.layers(rank, chunk);
      }
    }
    CHECK(next == split_layers(options).num_layers);
  }
}

TEST_CASE("a remainder is blamed once on whoever finds it first") {
  LayerSplitOptions options{.num_layers = 10, .pipeline_model_parallel_size = 4};
  CHECK(names_of(options) == Names{"default-layers-divisible-by-pp"});
  options.account_for_loss_in_pipeline_split = true;
  CHECK(names_of(options) == Names{"default-layers-divisible-by-pp"});
  options.num_virtual_stages_per_pipeline_rank = 2;
  CHECK(names_of(options) == Names{"account-for-divisible-by-pp"});
  options.account_for_loss_in_pipeline_split = false;
  CHECK(names_of(options) == Names{"build-layers-divisible"});
  options.num_virtual_stages_per_pipeline_rank.reset();
  options.num_layers_per_virtual_pipeline_stage = 2;
  CHECK(names_of(options) == Names{"layers-per-vstage-pp-divisible"});
  options.num_layers = 12;
  CHECK(names_of(options) == Names{"layers-per-vstage-divides-stage"});
  const LayerSplitResult result = split_layers(options);
  CHECK(result.findings.begin()->found == 3);
  CHECK(result.findings.begin()->wanted == 2);
}

TEST_CASE("chunks that do not divide a rank's layers are refused") {
  LayerSplitOptions options{
      .num_layers = 12, .pipeline_model_parallel_size = 4, .num_virtual_stages_per_pipeline_rank = 2};
  CHECK(names_of(options) == Names{"build-layers-divisible"});
  options.num_layers = 11;
  options.account_for_embedding_in_pipeline_split = true;
  CHECK(names_of(options) == Names{"account-for-vpp-divisible"});
}

TEST_CASE("interleaving needs enough pipeline ranks") {
  LayerSplitOptions options{.num_layers = 8, .num_virtual_stages_per_pipeline_rank = 2};
  CHECK(names_of(options) == Names{"vpp-overlap-needs-pp-gt-1"});
  options.overlap_p2p_comm = false;
  CHECK(names_of(options) == Names{"vpp-no-overlap-needs-pp-gt-2"});
  options.pipeline_model_parallel_size = 2;
  CHECK(names_of(options) == Names{"vpp-no-overlap-needs-pp-gt-2"});
  options.overlap_p2p_comm = true;
  CHECK(names_of(options) == Names{});
  CHECK(names_of({.hybrid_layer_pattern = "M|M"}) == Names{"vpp-overlap-needs-pp-gt-1"});
  CHECK(names_of({.num_layers = 1, .pipeline_model_parallel_layout = "Et|L"}) == Names{"vpp-overlap-needs-pp-gt-1"});
}

TEST_CASE("independent problems of the uneven split are all reported") {
  CHECK(names_of({.num_layers = 16,
                  .pipeline_model_parallel_size = 4,
                  .num_virtual_stages_per_pipeline_rank = 2,
                  .decoder_first_pipeline_num_layers = 3,
                  .decoder_last_pipeline_num_layers = 5}) ==
        Names{"first-stage-vpp-divisible", "last-stage-vpp-divisible"});
  CHECK(names_of({.num_layers = 14,
                  .pipeline_model_parallel_size = 4,
                  .num_virtual_stages_per_pipeline_rank = 2,
                  .decoder_first_pipeline_num_layers = 4,
                  .decoder_last_pipeline_num_layers = 4}) == Names{"middle-stage-vpp-divisible"});
  CHECK(names_of({.num_layers = 13, .pipeline_model_parallel_size = 4, .decoder_first_pipeline_num_layers = 3}) ==
        Names{"middle-stage-divisible"});
  CHECK(names_of({.num_layers = 13, .decoder_last_pipeline_num_layers = 3}) == Names{"middle-stage-mismatch"});
  CHECK(names_of({.num_layers = 3, .pipeline_model_parallel_size = 2, .decoder_first_pipeline_num_layers = 3}) ==
        Names{"middle-stage-mismatch"});
  CHECK(names_of({.num_layers = 12,
                  .pipeline_model_parallel_size = 4,
                  .decoder_first_pipeline_num_layers = 0,
                  .decoder_last_pipeline_num_layers = -1}) == Names{"first-stage-positive", "last-stage-positive"});
}

TEST_CASE("options that exclude each other are refused together") {
  CHECK(names_of({.num_layers = 12,
                  .pipeline_model_parallel_size = 4,
                  .num_layers_per_virtual_pipeline_stage = 5,
                  .num_virtual_stages_per_pipeline_rank = 2}) == Names{"vpp-option-exclusivity"});
  CHECK(names_of({.num_layers = 12,
                  .pipeline_model_parallel_size = 4,
                  .num_layers_per_virtual_pipeline_stage = 3,
                  .decoder_first_pipeline_num_layers = 3}) == Names{"layers-per-vstage-no-uneven"});
  CHECK(names_of({.num_layers = 13,
                  .pipeline_model_parallel_size = 4,
                  .decoder_first_pipeline_num_layers = 3,
                  .account_for_loss_in_pipeline_split = true}) == Names{"uneven-vs-account-for"});
  CHECK(names_of({.num_layers = 2,
                  .pipeline_model_parallel_size = 2,
                  .account_for_loss_in_pipeline_split = true,
                  .pipeline_model_parallel_layout = "Et|tL"}) == Names{"layout-vs-other-split-options"});
  CHECK(names_of(
            {.num_layers = 2, .num_virtual_stages_per_pipeline_rank = 2, .pipeline_model_parallel_layout = "Et|txL"}) ==
        Names{"vpp-option-exclusivity", "layout-valid-characters"});
  CHECK(names_of({.num_layers = 2,
                  .pipeline_model_parallel_size = 2,
                  .virtual_pipeline_model_parallel_size = 2,
                  .pipeline_model_parallel_layout = "Et|tL"}) == Names{"layout-vpp-conflict"});
}

TEST_CASE("a pattern forbids what it replaces and the rest is still checked") {
  CHECK(names_of({.pipeline_model_parallel_size = 2,
                  .num_layers_per_virtual_pipeline_stage = 0,
                  .account_for_loss_in_pipeline_split = true,
                  .hybrid_layer_pattern = "M|M|M"}) ==
        Names{"hybrid-pattern-forbidden-options", "hybrid-segments-divisible-by-pp"});
  CHECK(names_of({.pipeline_model_parallel_size = 2,
                  .decoder_first_pipeline_num_layers = 7,
                  .hybrid_layer_pattern = "M|M"}) == Names{"hybrid-pipes-vs-first-last"});
  CHECK(names_of({.pipeline_model_parallel_size = 2, .hybrid_layer_pattern = "MMM"}) ==
        Names{"hybrid-no-pipe-even-split"});
  CHECK(names_of({.pipeline_model_parallel_size = 3,
                  .decoder_first_pipeline_num_layers = 2,
                  .hybrid_layer_pattern = "MMMMM"}) == Names{"middle-stage-divisible"});
  CHECK(names_of({.pipeline_model_parallel_size = 2,
                  .virtual_pipeline_model_parallel_size = 2,
                  .hybrid_layer_pattern = "MM"}) == Names{"hybrid-no-pipe-no-vpp"});
  CHECK(names_of({.pipeline_model_parallel_size = 2,
                  .virtual_pipeline_model_parallel_size = 3,
                  .hybrid_layer_pattern = "M|M|M|M"}) == Names{"hybrid-vpp-conflict"});
  CHECK(names_of({.hybrid_layer_pattern = "Mx"}) == Names{"hybrid-pattern-symbols"});
}

TEST_CASE("an unknown depth leaves only the split out") {
  const LayerSplitResult even = split_layers({.pipeline_model_parallel_size = 3});
  CHECK_FALSE(even.refused());
  CHECK_FALSE(even.split);
  const LayerSplitResult vpp = split_layers({.num_virtual_stages_per_pipeline_rank = 2});
  CHECK(vpp.findings.has(SplitProblem::VppOverlapNeedsPpGt1));
  const LayerSplitResult layout =
      split_layers({.pipeline_model_parallel_size = 2, .pipeline_model_parallel_layout = "Et|t|t|L"});
  CHECK_FALSE(layout.refused());
  CHECK(layout.virtual_pipeline_model_parallel_size == 2);
}

TEST_CASE("what upstream lets pass silently is told but not refused") {
  const LayerSplitResult dropped =
      split_layers({.num_layers = 48, .decoder_first_pipeline_num_layers = 8, .decoder_last_pipeline_num_layers = 9});
  CHECK_FALSE(dropped.refused());
  REQUIRE(dropped.findings.has(SplitProblem::UnevenDropsLayers));
  CHECK(phase_of(dropped.findings.begin()->problem) == Phase::Silent);
  CHECK(dropped.split->table() == Table{{9}});
  const LayerSplitResult negative = split_layers({.num_layers = 4,
                                                  .pipeline_model_parallel_size = 3,
                                                  .decoder_first_pipeline_num_layers = 3,
                                                  .decoder_last_pipeline_num_layers = 3});
  CHECK_FALSE(negative.refused());
  CHECK(negative.findings.has(SplitProblem::UnevenNegativeMiddle));
  CHECK(negative.split->table() == Table{{3}, {0}, {3}});
}

TEST_CASE("absurd sizes are refused without arithmetic on them") {
  constexpr std::int64_t kHuge = INT64_MAX;
  CHECK(names_of({.num_layers = 8, .pipeline_model_parallel_size = kHuge}) == Names{"split-size-limit"});
  CHECK(names_of({.num_layers = INT64_MIN}) == Names{"split-size-limit"});
  CHECK(names_of({.num_layers = 8,
                  .pipeline_model_parallel_size = 2,
                  .decoder_first_pipeline_num_layers = kHuge,
                  .decoder_last_pipeline_num_layers = INT64_MIN}) == Names{"split-size-limit"});
  CHECK(names_of({.num_layers = 2'000'000, .pipeline_model_parallel_size = 2'000'000}) == Names{"split-size-limit"});
  CHECK(names_of({.num_layers = kMaxSplitSize,
                  .pipeline_model_parallel_size = 2,
                  .num_layers_per_virtual_pipeline_stage = 1}) == Names{"split-size-limit"});
  CHECK(names_of({.num_layers = 8, .pipeline_model_parallel_size = 0}) == Names{"split-pipeline-size-positive"});
  CHECK(names_of({.pipeline_model_parallel_size = -1, .hybrid_layer_pattern = "M"}) ==
        Names{"split-pipeline-size-positive"});
  CHECK(names_of({.num_layers = 8, .num_virtual_stages_per_pipeline_rank = 0}) == Names{"split-vpp-size-positive"});
  CHECK(names_of({.num_layers = 8, .num_layers_per_virtual_pipeline_stage = -2}) == Names{"split-vpp-size-positive"});
  CHECK(names_of({.num_layers = 0}) == Names{"split-num-layers-positive"});
  CHECK(names_of({.hybrid_layer_pattern = ""}) == Names{"split-num-layers-positive"});
  CHECK(names_of({.num_layers = 0, .pipeline_model_parallel_layout = "EL"}) == Names{"split-num-layers-positive"});
  CHECK(names_of({.num_layers = -1, .account_for_embedding_in_pipeline_split = true}) ==
        Names{"account-for-empty-chunk"});
  CHECK(split_layers({.num_layers = kMaxSplitSize}).split->layers(0, 0) == kMaxSplitSize);
}

TEST_CASE("the arithmetic of a split is constant") {
  constexpr RegularSplit kSplit{.pipeline_model_parallel_size = 4,
                                .chunks = 2,
                                .first = 1,
                                .middle = 1,
                                .last = 1,
                                .embedding_slot = true,
                                .loss_slot = true};
  static_assert(kSplit.layers(0, 0) == 0 && kSplit.layers(3, 1) == 0 && kSplit.layers_before(3, 1) == 6);
  constexpr bool kRefused = [] {
    SplitFindings findings;
    detail::check_even({.num_layers = 10, .pipeline_model_parallel_size = 4}, {}, findings);
    return findings.has(SplitProblem::DefaultLayersDivisibleByPp);
  }();
  static_assert(kRefused);
  CHECK(kRefused);
}
