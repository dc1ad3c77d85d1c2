#include "gtp/groups.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <iterator>
#include <map>
#include <random>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

#include "../support/data.hpp"
#include "../support/rank_groups.hpp"
#include "../support/sha256.hpp"

namespace {

using Ranks = std::vector<std::int64_t>;
using Groups = std::vector<Ranks>;

constexpr gtp::Topology kSixteen = *gtp::make_topology({.world_size = 16,
                                                        .tensor_model_parallel_size = 2,
                                                        .tensor_parallel_num_weight_shards = 4,
                                                        .pipeline_model_parallel_size = 2,
                                                        .expert_model_parallel_size = 2,
                                                        .expert_tensor_parallel_size = 1,
                                                        .expert_tensor_parallel_num_weight_shards = 2});
constexpr gtp::GroupFamily kMp = gtp::make_group_family(kSixteen, *gtp::find_group_family("mp"));

static_assert(std::forward_iterator<gtp::GroupView::iterator>);
static_assert(std::ranges::forward_range<gtp::GroupFamily>);
static_assert(kMp.count() == 2 && kMp.size() == 8);
static_assert(kMp.rank(1, 4) == 12);
static_assert(kMp.group_of(12) == gtp::GroupPlace{1, 4});
static_assert(sizeof(gtp::GroupFamily) <= 256, "a family is a small value");

// A family by upstream's notation, kept apart from the table under test.
struct Recipe {
  const char* name;
  bool expert;
  const char* tokens;
};

constexpr std::array<Recipe, 20> kRecipes{{{"gtp_remat", false, "gtp_remat"},
                                           {"dp_cp", false, "dp-cp"},
                                           {"dp", false, "dp"},
                                           {"gtp_remat_dp", false, "gtp_remat-dp"},
                                           {"gtp_remat_dp_cp", false, "gtp_remat-dp-cp"},
                                           {"cp", false, "cp"},
                                           {"mp", false, "tp-gtp_remat-pp"},
                                           {"tp", false, "tp"},
                                           {"pp", false, "pp"},
                                           {"tp_dp_cp", false, "tp-gtp_remat-dp-cp"},
                                           {"tp_dp", false, "tp-gtp_remat-dp"},
                                           {"tp_cp", false, "tp-cp"},
                                           {"expt_gtp_remat", true, "gtp_remat"},
                                           {"ep", true, "ep"},
                                           {"ep_tp", true, "tp"},
                                           {"tp_ep_mp", true, "tp-ep"},
                                           {"tp_ep_pp", true, "tp-ep-pp"},
                                           {"tp_ep_gtp_remat_pp", true, "tp-ep-gtp_remat-pp"},
                                           {"ep_dp", true, "dp"},
                                           {"ep_gtp_remat_dp", true, "gtp_remat-dp"}}};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> tokens(1);
  for (const char letter : text) {
    if (letter == '-') {
      tokens.emplace_back();
    } else {
      tokens.back() += letter;
    }
  }
  return tokens;
}

std::map<std::string, std::int64_t> sizes_by_token(const gtp::Topology& topology, bool expert) {
  if (expert) {
    return {
        {"tp", topology.etp}, {"gtp_remat", topology.egtp_remat}, {"cp", 1}, {"ep", topology.ep}, {"dp", topology.edp},
        {"pp", topology.pp}};
  }
  return {{"tp", topology.tp}, {"gtp_remat", topology.gtp_remat}, {"cp", topology.cp}, {"ep", 1}, {"dp", topology.dp},
          {"pp", topology.pp}};
}

// Takes every rank apart and puts those together that agree outside the tokens; the outermost axis sorts first.
Groups brute_force(const gtp::Topology& topology, const Recipe& recipe) {
  std::string order = recipe.expert ? "tp-cp-ep-gtp_remat-" : "tp-gtp_remat-cp-ep-";
  order += topology.pp_before_dp ? "pp-dp" : "dp-pp";
  std::map<std::string, std::int64_t> sizes = sizes_by_token(topology, recipe.expert);
  std::vector<std::string> members = split(recipe.tokens);
  std::map<Ranks, Ranks> buckets;
  for (std::int64_t rank = 0; rank < topology.world_size; ++rank) {
    Ranks others;
    std::int64_t rest = rank;
    for (const std::string& token : split(order)) {
      if (std::ranges::count(members, token) == 0) others.insert(others.begin(), rest % sizes[token]);
      rest /= sizes[token];
    }
    buckets[others].push_back(rank);
  }
  Groups groups;
  for (const auto& [others, ranks] : buckets) groups.push_back(ranks);
  return groups;
}

Groups listed(const gtp::GroupFamily& family) {
  Groups groups;
  for (const gtp::GroupView group : family) groups.emplace_back(group.begin(), group.end());
  return groups;
}

Groups family_groups(const gtp::Topology& topology, std::string_view name) {
  const gtp::GroupFamilyRow* row = gtp::find_group_family(name);
  REQUIRE(row != nullptr);
  return listed(gtp::make_group_family(topology, *row));
}

std::string json_text(const gtp::GroupFamily& family) {
  std::string text;
  gtp::write_json(family, [&text](std::string_view piece) { text += piece; });
  return text;
}

std::int64_t pick(std::mt19937& random, std::initializer_list<std::int64_t> choices) {
  return *(choices.begin() + static_cast<std::ptrdiff_t>(random() % choices.size()));
}

// Hands each prime factor of `product` to one of the parts.
template <std::size_t Count>
std::array<std::int64_t, Count> random_factors(std::mt19937& random, std::int64_t product) {
  std::array<std::int64_t, Count> parts;
  parts.fill(1);
  for (std::int64_t prime = 2; product > 1; ++prime) {
    for (; product % prime == 0; product /= prime) parts[random() % Count] *= prime;
  }
  return parts;
}

gtp::Topology random_topology(std::mt19937& random) {
  gtp::TopologyOptions options;
  options.tensor_model_parallel_size = pick(random, {1, 2, 3, 4, 5});
  const std::int64_t remat = pick(random, {1, 2, 3, 4, 7});
  options.tensor_parallel_num_weight_shards = options.tensor_model_parallel_size * remat;
  options.context_parallel_size = pick(random, {1, 2, 3});
  options.pipeline_model_parallel_size = pick(random, {1, 2, 3, 4, 5});
  const std::int64_t dp = pick(random, {1, 2, 3, 4});
  const std::int64_t inner = options.tensor_model_parallel_size * remat * options.context_parallel_size;
  options.world_size = inner * options.pipeline_model_parallel_size * dp;
  options.use_tp_pp_dp_mapping = random() % 2 == 0;
  const bool equal_dp = options.use_tp_pp_dp_mapping || random() % 4 == 0;
  const std::array<std::int64_t, 3> experts = random_factors<3>(random, inner);
  options.expert_tensor_parallel_size = experts[0];
  options.expert_model_parallel_size = experts[1] * (equal_dp ? 1 : dp);
  options.expert_tensor_parallel_num_weight_shards = experts[0] * experts[2];
  const gtp::TopologyResult result = gtp::make_topology(options);
  REQUIRE(result);
  return *result;
}

// Every way to ask the family must give the listed groups.
void check_lookups(const gtp::GroupFamily& family, const Groups& groups, std::int64_t world_size) {
  REQUIRE(family.count() == static_cast<std::int64_t>(groups.size()));
  std::int64_t placed = 0;
  bool agrees = true;  // one check for all ranks: a check takes longer than a look-up
  for (std::int64_t index = 0; index < family.count(); ++index) {
    const Ranks& ranks = groups[static_cast<std::size_t>(index)];
    REQUIRE(family.size() == static_cast<std::int64_t>(ranks.size()));
    REQUIRE(family.group(index)->front() == ranks.front());
    for (std::int64_t position = 0; position < family.size(); ++position) {
      const std::int64_t rank = ranks[static_cast<std::size_t>(position)];
      agrees =
          agrees && family.rank(index, position) == rank && family.group_of(rank) == gtp::GroupPlace{index, position};
    }
  }
  REQUIRE(agrees);
  for (std::int64_t rank = 0; rank < world_size; ++rank) placed += family.group_of(rank).has_value() ? 1 : 0;
  CHECK(placed == family.count() * family.size());
}

}  // namespace

TEST_CASE("there are 22 families with distinct names and a meaning each") {
  CHECK(gtp::kGroupFamilies.size() == 22);
  for (const gtp::GroupFamilyRow& row : gtp::kGroupFamilies) {
    CHECK(gtp::find_group_family(row.name) == &row);
    CHECK_FALSE(row.meaning.empty());
  }
  CHECK(gtp::find_group_family("dp_replica") == nullptr);
  CHECK(gtp::find_group_family("") == nullptr);
}

TEST_CASE("sixteen ranks with both remat sizes are grouped as upstream groups them") {
  CHECK(family_groups(kSixteen, "gtp_remat").front() == Ranks{0, 2});
  CHECK(family_groups(kSixteen, "dp").front() == Ranks{0, 4});
  CHECK(family_groups(kSixteen, "gtp_remat_dp").front() == Ranks{0, 2, 4, 6});
  CHECK(family_groups(kSixteen, "mp") == Groups{{0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}});
  CHECK(family_groups(kSixteen, "tp_ep_pp").front() == Ranks{0, 1, 8, 9});
  CHECK(family_groups(kSixteen, "embd").back() == Ranks{7, 15});
}

TEST_CASE("word embeddings are on the first and last stage, or on the only one") {
  const gtp::TopologyResult four_stages = gtp::make_topology({.world_size = 8, .pipeline_model_parallel_size = 4});
  CHECK(family_groups(*four_stages, "pp") == Groups{{0, 2, 4, 6}, {1, 3, 5, 7}});
  CHECK(family_groups(*four_stages, "embd") == Groups{{0, 6}, {1, 7}});
  CHECK(family_groups(*four_stages, "pos_embd") == Groups{{0}, {1}});
  const gtp::TopologyResult one_stage = gtp::make_topology({.world_size = 3});
  CHECK(family_groups(*one_stage, "embd") == Groups{{0}, {1}, {2}});
  CHECK(family_groups(*one_stage, "pos_embd") == Groups{{0}, {1}, {2}});
}

TEST_CASE("a rank of an inner stage is in no embedding group") {
  const gtp::TopologyResult four_stages = gtp::make_topology({.world_size = 8, .pipeline_model_parallel_size = 4});
  const gtp::GroupFamily embeddings = gtp::make_group_family(*four_stages, *gtp::find_group_family("embd"));
  CHECK(embeddings.group_of(7) == gtp::GroupPlace{1, 1});
  CHECK_FALSE(embeddings.group_of(3).has_value());
  CHECK_FALSE(embeddings.group_of(4).has_value());
  const gtp::GroupFamily positions = gtp::make_group_family(*four_stages, *gtp::find_group_family("pos_embd"));
  CHECK(positions.group_of(1) == gtp::GroupPlace{1, 0});
  CHECK_FALSE(positions.group_of(7).has_value());
}

TEST_CASE("groups, positions and ranks that do not exist have no answer") {
  CHECK_FALSE(kMp.rank(-1, 0).has_value());
  CHECK_FALSE(kMp.rank(2, 0).has_value());
  CHECK_FALSE(kMp.rank(0, 8).has_value());
  CHECK_FALSE(kMp.rank(0, -1).has_value());
  CHECK_FALSE(kMp.group(2).has_value());
  CHECK_FALSE(kMp.group(-1).has_value());
  CHECK_FALSE(kMp.group_of(16).has_value());
  CHECK_FALSE(kMp.group_of(-1).has_value());
}

TEST_CASE("all families of random grids agree with taking every rank apart") {
  std::mt19937 random(20260822);
  int reordered = 0;
  for (int round = 0; round < 400; ++round) {
    const gtp::Topology topology = random_topology(random);
    reordered += topology.pp_before_dp ? 1 : 0;
    INFO("world " << topology.world_size << " tp " << topology.tp << " gtp_remat " << topology.gtp_remat << " cp "
                  << topology.cp << " pp " << topology.pp << " etp " << topology.etp << " ep " << topology.ep
                  << " egtp_remat " << topology.egtp_remat << " pp first " << topology.pp_before_dp);
    for (const Recipe& recipe : kRecipes) {
      INFO(recipe.name);
      const Groups expected = brute_force(topology, recipe);
      const gtp::GroupFamily family = gtp::make_group_family(topology, *gtp::find_group_family(recipe.name));
      REQUIRE(listed(family) == expected);
      check_lookups(family, expected, topology.world_size);
    }
    Groups first_and_last;
    for (const Ranks& stages : brute_force(topology, {"pp", false, "pp"})) {
      first_and_last.push_back(stages.size() == 1 ? stages : Ranks{stages.front(), stages.back()});
    }
    const gtp::GroupFamily embeddings = gtp::make_group_family(topology, *gtp::find_group_family("embd"));
    REQUIRE(listed(embeddings) == first_and_last);
    check_lookups(embeddings, first_and_last, topology.world_size);
  }
  CHECK(reordered > 100);
}

TEST_CASE("all recorded digests of all families are met") {
  const nlohmann::json rows = gtp::test::read_json(gtp::test::project_data("rank_groups.json"));
  int digests = 0;
  for (const nlohmann::json& row : rows) {
    if (!row.contains("sha256")) continue;
    INFO(row.at("topology").dump());
    const gtp::TopologyResult topology = gtp::make_topology(gtp::test::topology_options(row.at("topology")));
    REQUIRE(topology);
    for (const gtp::GroupFamilyRow& family : gtp::kGroupFamilies) {
      INFO(family.name);
      gtp::test::Sha256 digest;
      gtp::write_json(gtp::make_group_family(*topology, family), digest);
      CHECK(digest.hex() == row.at("sha256").at(std::string(family.name)).get<std::string>());
      ++digests;
    }
  }
  CHECK(digests == 225 * 22);
}

TEST_CASE("all recorded groups are listed in upstream's order") {
  const std::optional<std::filesystem::path> path = gtp::test::shared_data("rank_groups.json");
  if (!path) {
    MESSAGE("skipped: the shared rank_groups.json is not here");
    return;
  }
  int compared = 0;
  for (const nlohmann::json& row : gtp::test::read_json(*path)) {
    if (!row.contains("groups")) continue;
    INFO(row.at("topology").dump());
    const gtp::TopologyResult topology = gtp::make_topology(gtp::test::topology_options(row.at("topology")));
    REQUIRE(topology);
    for (const auto& family : row.at("groups").items()) {
      INFO(family.key());
      CHECK(family_groups(*topology, family.key()) == family.value().get<Groups>());
      ++compared;
    }
  }
  CHECK(compared == 158 * 22);
}

TEST_CASE("JSON text is compact and the same however many pieces it comes in") {
  const gtp::Grid grid = *gtp::Grid::make(gtp::dense_order(false), {2, 1, 1, 1, 2, 1});
  CHECK(json_text(gtp::GroupFamily(grid, {gtp::Axis::kDp})) == "[[0,2],[1,3]]");
  CHECK(json_text(gtp::GroupFamily(grid, {})) == "[[0],[1],[2],[3]]");
  CHECK(json_text(gtp::GroupFamily(gtp::Grid(), {})) == "[[0]]");

  const gtp::Grid large = *gtp::Grid::make(gtp::dense_order(false), {8, 1, 1, 1, 1000, 1});
  const gtp::GroupFamily family(large, {gtp::Axis::kDp});
  int pieces = 0;
  std::string text;
  gtp::write_json(family, [&](std::string_view piece) {
    ++pieces;
    CHECK(piece.size() <= 16384);
    text += piece;
  });
  CHECK(pieces > 1);
  CHECK(text == nlohmann::json(listed(family)).dump());
}

TEST_CASE("every rank of a million is in exactly one group of each family that spans the world") {
  const gtp::TopologyResult topology = gtp::make_topology({.world_size = 1048576,
                                                           .tensor_model_parallel_size = 4,
                                                           .tensor_parallel_num_weight_shards = 16,
                                                           .context_parallel_size = 2,
                                                           .pipeline_model_parallel_size = 8,
                                                           .expert_model_parallel_size = 8,
                                                           .expert_tensor_parallel_size = 1,
                                                           .expert_tensor_parallel_num_weight_shards = 2});
  REQUIRE(topology);
  std::vector<bool> seen;
  for (const gtp::GroupFamilyRow& row : gtp::kGroupFamilies) {
    INFO(row.name);
    seen.assign(1048576, false);
    std::int64_t visited = 0;
    bool repeated = false;
    for (const gtp::GroupView group : gtp::make_group_family(*topology, row)) {
      for (const std::int64_t rank : group) {
        repeated = repeated || seen[static_cast<std::size_t>(rank)];
        seen[static_cast<std::size_t>(rank)] = true;
        ++visited;
      }
    }
    CHECK_FALSE(repeated);
    const std::int64_t pipelines = 1048576 / 8;
    const std::int64_t expected = row.name == "embd" ? 2 * pipelines : row.name == "pos_embd" ? pipelines : 1048576;
    CHECK(visited == expected);
  }
}

TEST_CASE("a world of a quintillion ranks is looked up without overflow") {
  constexpr std::int64_t kHalf = std::int64_t{1} << 61;
  const gtp::Topology topology = *gtp::make_topology({.world_size = 2 * kHalf, .pipeline_model_parallel_size = 2});
  const gtp::GroupFamily stages = gtp::make_group_family(topology, *gtp::find_group_family("pp"));
  CHECK(stages.count() == kHalf);
  CHECK(stages.rank(kHalf - 1, 1) == 2 * kHalf - 1);
  CHECK(stages.group_of(2 * kHalf - 1) == gtp::GroupPlace{kHalf - 1, 1});
  const gtp::GroupView last = *stages.group(kHalf - 1);
  CHECK(Ranks(last.begin(), last.end()) == Ranks{kHalf - 1, 2 * kHalf - 1});
}
