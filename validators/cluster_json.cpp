// Our own form: {"preset":"gb200-nvl72","nodes":[{"name":"n[01-18]","gpus":4,"domain":"b1","switch":["s4","s0"]}]}.
#include <fmt/format.h>

#include <array>
#include <string>

#include <gtp/assign.hpp>
#include <gtp/hardware.hpp>

#include "validators/cluster_reading.hpp"
#include "validators/json_reader.hpp"

namespace gtp::readers {

namespace {

class ClusterJson {
 public:
  explicit ClusterJson(ClusterReading& reading) : reading_(reading) {}

  bool read(const Node& root) {
    if (root.kind != Kind::Map) return fail(root, "expected an object");
    return read_keys(root, kKeys) && add_preset();
  }

 private:
  /// What stands under a key, and who reads it.
  struct Key {
    std::string_view name;
    bool (ClusterJson::*read)(const Node& value);
  };

  static const std::array<Key, 10> kKeys;
  static const std::array<Key, 4> kHostKeys;
  static const std::array<Key, 3> kNicKeys;

  bool fail(const Node& node, std::string label) { return reading_.fail(node.place, std::move(label)); }

  template <std::size_t N>
  bool read_keys(const Node& map, const std::array<Key, N>& keys) {
    if (map.kind != Kind::Map) return fail(map, "expected an object");
    for (const Entry& entry : map.entries) {
      if (entry.overridden) continue;
      const auto key = std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return k.name == entry.key; });
      if (key == keys.end())
        reading_.warn(entry.key_place, "no key of a cluster");
      else if (!(this->*key->read)(entry.value))
        return false;
    }
    return true;
  }

  bool read_text(const Node& node, std::string& text, std::size_t longest = kLongestSwitchName) {
    if (node.kind != Kind::Scalar || !node.quoted || node.text.empty() || node.text.size() > longest)
      return fail(node, fmt::format("expected a text of 1 to {} bytes", longest));
    text = node.text;
    return true;
  }
  bool read_count(const Node& node, std::optional<std::int64_t>& count, std::int64_t least, std::int64_t most) {
    const auto value = node.kind == Kind::Scalar && !node.quoted ? parse_int(node.text).value : std::nullopt;
    if (!value || *value < least || *value > most)
      return fail(node, fmt::format("expected a number from {} to {}", least, most));
    count = value;
    return true;
  }
  bool read_counts(const Node& node, std::vector<std::int64_t>& counts) {
    if (node.kind != Kind::List || node.items.size() > static_cast<std::size_t>(kMostGpusPerHost))
      return fail(node, "expected a list of numbers");
    for (const Node& item : node.items) {
      std::optional<std::int64_t> count;
      if (!read_count(item, count, 0, kMostGpusPerHost)) return false;
      counts.push_back(*count);
    }
    return true;
  }

  bool read_name(const Node& node) { return read_text(node, reading_.cluster.name); }
  bool read_preset(const Node& node) {
    std::string name;
    if (!read_text(node, name)) return false;
    preset_ = find_cluster_preset(name);
    return preset_ != nullptr || fail(node, "no preset has this name");
  }
  bool read_gpu(const Node& node) {
    std::string name;
    if (!read_text(node, name)) return false;
    gpu_ = find_gpu(name);
    return gpu_ != nullptr || fail(node, "this GPU is not known: give gpu_arch and gpu_memory_gib instead");
  }
  bool read_gpu_arch(const Node& node) {
    return read_text(node, reading_.cluster.gpu_arch) &&
           (arch_major(reading_.cluster.gpu_arch) || fail(node, "expected ampere, hopper or blackwell"));
  }
  bool read_gpu_memory(const Node& node) {
    const auto memory = node.kind == Kind::Scalar && !node.quoted ? parse_float(node.text).value : std::nullopt;
    constexpr double kMost = 1e6;
    if (!memory || !(*memory > 0) || !(*memory < kMost)) return fail(node, "expected a number of GiB");
    reading_.cluster.gpu_memory_gib = memory;
    return true;
  }
  bool read_gpus_per_node(const Node& node) {
    return read_count(node, reading_.cluster.gpus_per_host, 1, kMostGpusPerHost);
  }
  bool read_nodes_per_domain(const Node& node) {
    return read_count(node, reading_.cluster.hosts_per_domain, 1, static_cast<std::int64_t>(kMostClusterHosts));
  }
  bool read_gpu_numa(const Node& node) { return read_counts(node, reading_.cluster.gpu_numa); }

  bool read_nics(const Node& node) {
    if (node.kind != Kind::List || node.items.size() > static_cast<std::size_t>(kMostGpusPerHost))
      return fail(node, "expected a list of NICs");
    for (const Node& item : node.items) {
      nic_ = {};
      if (!read_keys(item, kNicKeys)) return false;
      if (nic_.name.empty()) return fail(item, "this NIC has no `name`");
      reading_.cluster.nics.push_back(nic_);
    }
    return true;
  }
  bool read_nic_name(const Node& node) { return read_text(node, nic_.name); }
  bool read_nic_numa(const Node& node) { return read_count(node, nic_.numa, 0, kMostGpusPerHost); }
  bool read_nic_gpus(const Node& node) { return read_counts(node, nic_.gpus); }

  bool read_nodes(const Node& node) {
    if (node.kind != Kind::List) return fail(node, "expected a list of hosts");
    for (const Node& item : node.items) {
      host_ = {};
      list_ = nullptr;
      if (!read_keys(item, kHostKeys)) return false;
      if (list_ == nullptr) return fail(item, "this host has no `name`");
      if (!add_hosts()) return false;
    }
    return true;
  }
  bool read_host_names(const Node& node) {
    list_ = &node;
    return read_text(node, host_.name, node.text.size());
  }
  bool read_host_gpus(const Node& node) { return read_count(node, host_.gpus, 1, kMostGpusPerHost); }
  bool read_host_domain(const Node& node) { return read_text(node, host_.domain); }
  bool read_host_switch(const Node& node) {
    if (node.kind == Kind::Scalar) return read_text(node, host_.switches.emplace_back());
    if (node.kind != Kind::List || node.items.size() > kMostSwitchLevels)
      return fail(node, fmt::format("expected a list of up to {} switches, the leaf first", kMostSwitchLevels));
    for (const Node& item : node.items)
      if (!read_text(item, host_.switches.emplace_back())) return false;
    return true;
  }

  /// A name stands for several hosts when it is a list as Slurm writes them.
  bool add_hosts() {
    std::vector<std::string> names;
    const std::size_t length = list_->place.end - list_->place.begin;
    const std::size_t quote = length == list_->text.size() + 2 ? 1 : 0;
    if (!reading_.expand(list_->text, list_->place.begin + quote, names)) return false;
    for (std::string& name : names) {
      const std::size_t known = reading_.cluster.hosts.size();
      if (known == kMostClusterHosts) return fail(*list_, "these are too many hosts");
      ClusterHost& host = reading_.host(name);
      if (reading_.cluster.hosts.size() == known)
        return fail(*list_, fmt::format("the host `{}` is listed twice", name));
      host.gpus = host_.gpus;
      host.domain = host_.domain;
      host.switches = host_.switches;
    }
    return true;
  }

  /// Below what the file says itself; the name of a GPU says nothing about the hosts that it is in.
  bool add_preset() {
    Cluster& cluster = reading_.cluster;
    for (const ClusterPreset* known : {gpu_, preset_}) {
      if (known == nullptr) continue;
      if (cluster.gpu_arch.empty()) cluster.gpu_arch = known->gpu_arch;
      if (!cluster.gpu_memory_gib) cluster.gpu_memory_gib = known->gpu_memory_gib;
    }
    if (preset_ == nullptr) return true;
    if (cluster.name.empty()) cluster.name = preset_->name;
    if (!cluster.gpus_per_host) cluster.gpus_per_host = preset_->gpus_per_host;
    if (!cluster.hosts_per_domain) cluster.hosts_per_domain = preset_->hosts_per_domain;
    return true;
  }

  ClusterReading& reading_;
  const ClusterPreset* preset_ = nullptr;
  const ClusterPreset* gpu_ = nullptr;
  ClusterHost host_{};
  const Node* list_ = nullptr;  // of the names of `host_`
  ClusterNic nic_{};
};

const std::array<ClusterJson::Key, 10> ClusterJson::kKeys{{{"name", &ClusterJson::read_name},
                                                           {"preset", &ClusterJson::read_preset},
                                                           {"gpu", &ClusterJson::read_gpu},
                                                           {"gpu_arch", &ClusterJson::read_gpu_arch},
                                                           {"gpu_memory_gib", &ClusterJson::read_gpu_memory},
                                                           {"gpus_per_node", &ClusterJson::read_gpus_per_node},
                                                           {"nodes_per_domain", &ClusterJson::read_nodes_per_domain},
                                                           {"gpu_numa", &ClusterJson::read_gpu_numa},
                                                           {"nics", &ClusterJson::read_nics},
                                                           {"nodes", &ClusterJson::read_nodes}}};
const std::array<ClusterJson::Key, 4> ClusterJson::kHostKeys{{{"name", &ClusterJson::read_host_names},
                                                              {"gpus", &ClusterJson::read_host_gpus},
                                                              {"domain", &ClusterJson::read_host_domain},
                                                              {"switch", &ClusterJson::read_host_switch}}};
const std::array<ClusterJson::Key, 3> ClusterJson::kNicKeys{{{"name", &ClusterJson::read_nic_name},
                                                             {"numa", &ClusterJson::read_nic_numa},
                                                             {"gpus", &ClusterJson::read_nic_gpus}}};

}  // namespace

bool read_cluster_json(ClusterReading& reading, const Source& source) {
  const std::optional<JsonText> json = read_json(source, reading.source(), reading.out());
  if (!json) return false;
  if (json->not_json) return reading.fail(*json->not_json, "expected a value: JSON has no such number");
  return ClusterJson(reading).read(json->root);
}

}  // namespace gtp::readers
