// NCCL's topology file (NCCL_TOPO_DUMP_FILE): one host's GPUs and NICs with their NUMA nodes. Its XML has elements and
// attributes only, so that a few lines read it; everything else of XML is skipped or refused.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include <gtp/assign.hpp>

#include "validators/cluster_reading.hpp"

namespace gtp::readers {

namespace {

struct Attribute {
  std::string_view name, value;
};

struct Tag {
  std::string_view name;
  std::vector<Attribute> attributes{};
  bool closes = false;  ///< `</name>`
  bool single = false;  ///< `<name/>`

  [[nodiscard]] std::optional<std::int64_t> number(std::string_view attribute) const {
    for (const Attribute& a : attributes)
      if (a.name == attribute) return parse_int(a.value).value;
    return std::nullopt;
  }
  [[nodiscard]] std::string_view text(std::string_view attribute) const {
    for (const Attribute& a : attributes)
      if (a.name == attribute) return a.value;
    return {};
  }
};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == ':' || c == '.';
}

class Xml {
 public:
  explicit Xml(ClusterReading& reading) : reading_(reading), text_(reading.text) {}

  /// Nothing at the end, and after a failure.
  std::optional<Tag> next() {
    while ((at_ = text_.find('<', at_)) != std::string_view::npos) {
      const std::string_view end = text_.substr(at_).starts_with("<!--") ? "-->" : ">";
      if (!text_.substr(at_).starts_with("<!") && !text_.substr(at_).starts_with("<?")) return read_tag();
      const std::size_t found = text_.find(end, at_);
      if (found == std::string_view::npos) return fail("no end follows");
      at_ = found + end.size();
    }
    return std::nullopt;
  }
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  std::optional<Tag> fail(const char* label) {
    failed_ = true;
    const std::size_t at = std::min(at_, text_.size());
    reading_.fail(at, std::min(at + 1, text_.size()), label);
    return std::nullopt;
  }
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_blanks() {
    while (is_blank(peek())) ++at_;
  }
  std::string_view read_name() {
    const std::size_t begin = at_;
    while (is_name(peek())) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  std::optional<Tag> read_tag() {
    constexpr std::size_t kMostAttributes = 64;
    Tag tag;
    ++at_;
    if (peek() == '/') ++at_, tag.closes = true;
    tag.name = read_name();
    if (tag.name.empty()) return fail("expected the name of an element");
    for (skip_blanks(); peek() != '>'; skip_blanks()) {
      if (peek() == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '>') {
        tag.single = true;
        ++at_;
        continue;
      }
      Attribute attribute{read_name(), {}};
      if (attribute.name.empty() || tag.attributes.size() == kMostAttributes) return fail("expected `>`");
      if (peek() != '=') return fail("expected `=`");
      ++at_;
      const char quote = peek();
      const std::size_t end = quote == '"' || quote == '\'' ? text_.find(quote, at_ + 1) : std::string_view::npos;
      if (end == std::string_view::npos) return fail("expected a value in quotes");
      attribute.value = text_.substr(at_ + 1, end - at_ - 1);
      tag.attributes.push_back(attribute);
      at_ = end + 1;
    }
    ++at_;
    return tag;
  }

  ClusterReading& reading_;
  std::string_view text_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

/// GPUs and NICs below one PCIe port of a CPU reach each other through bridges alone.
class NcclTopology {
 public:
  explicit NcclTopology(ClusterReading& reading) : reading_(reading), xml_(reading) {}

  bool read() {
    while (const std::optional<Tag> tag = xml_.next()) {
      if (tag->closes) {
        if (open_.empty() || open_.back() != tag->name) return reading_.fail(tag->name, "this element is not open");
        open_.pop_back();
        continue;
      }
      if (!read_element(*tag)) return false;
      if (tag->single) continue;
      if (open_.size() == kDeepest) return reading_.fail(tag->name, "this is too deep");
      open_.push_back(tag->name);
    }
    if (xml_.failed()) return false;
    if (!open_.empty()) return reading_.fail(open_.back(), "this element has no end");
    return finish();
  }

 private:
  static constexpr std::size_t kDeepest = 64;

  struct Device {
    std::int64_t number;
    std::optional<std::int64_t> numa;
    std::size_t port;
  };

  bool read_element(const Tag& tag) {
    if (open_.empty() && tag.name != "system") return reading_.fail(tag.name, "expected the element `system`");
    if (tag.name == "cpu") {
      numa_ = tag.number("numaid");
      if (numa_ && (*numa_ < 0 || *numa_ > kMostGpusPerHost)) numa_.reset();
    }
    if (!open_.empty() && open_.back() == "cpu") ++port_;
    if (tag.name == "gpu") return add_gpu(tag);
    if (tag.name == "net") return add_nic(tag);
    return true;
  }

  bool add_gpu(const Tag& tag) {
    const std::optional<std::int64_t> dev = tag.number("dev");
    if (!dev || *dev < 0 || *dev >= kMostGpusPerHost) return reading_.fail(tag.name, "expected its number, `dev`");
    for (const Device& gpu : gpus_)
      if (gpu.number == *dev) return reading_.fail(tag.name, fmt::format("the GPU {} is there twice", *dev));
    gpus_.push_back({*dev, numa_, port_});
    constexpr std::array<std::pair<std::int64_t, std::string_view>, 3> kArchs{
        {{8, "ampere"}, {9, "hopper"}, {10, "blackwell"}}};
    for (const auto& [major, arch] : kArchs)
      if (tag.number("sm").value_or(0) / 10 == major) reading_.cluster.gpu_arch = arch;
    return true;
  }

  bool add_nic(const Tag& tag) {
    const std::string_view name = tag.text("name");
    if (name.empty() || name.size() > kLongestSwitchName || nics_.size() == static_cast<std::size_t>(kMostGpusPerHost))
      return reading_.fail(tag.name, "expected its name, `name`");
    nics_.push_back({std::string(name), numa_, {}});
    ports_.push_back(port_);
    return true;
  }

  bool finish() {
    if (gpus_.empty()) return reading_.fail(0, 0, "no element `gpu` is in it");
    std::sort(gpus_.begin(), gpus_.end(), [](const Device& a, const Device& b) { return a.number < b.number; });
    Cluster& cluster = reading_.cluster;
    cluster.gpus_per_host = static_cast<std::int64_t>(gpus_.size());
    for (const Device& gpu : gpus_) {
      if (gpu.numa) cluster.gpu_numa.push_back(*gpu.numa);
      for (std::size_t nic = 0; nic < nics_.size(); ++nic)
        if (ports_[nic] == gpu.port) nics_[nic].gpus.push_back(gpu.number);
    }
    if (cluster.gpu_numa.size() != gpus_.size()) cluster.gpu_numa.clear();
    cluster.nics = std::move(nics_);
    return true;
  }

  ClusterReading& reading_;
  Xml xml_;
  std::vector<std::string_view> open_{};
  std::optional<std::int64_t> numa_{};
  std::size_t port_ = 0;
  std::vector<Device> gpus_{};
  std::vector<ClusterNic> nics_{};
  std::vector<std::size_t> ports_{};  // of each NIC
};

}  // namespace

bool read_nccl_topology(ClusterReading& reading) { return NcclTopology(reading).read(); }

}  // namespace gtp::readers
