#include "kernels/host_kernels.hpp"

#include <cstdint>
#include <cstring>

#include "kernels/format/bf16.hpp"

namespace gtp::host {

namespace {

const char* offset(const void* data, std::size_t bytes) noexcept { return static_cast<const char*>(data) + bytes; }
char* offset(void* data, std::size_t bytes) noexcept { return static_cast<char*>(data) + bytes; }

/// Element `index` of part `part`, summed over the members.
float sum(std::span<const CollectiveCall* const> calls, std::size_t part, std::size_t index, bool in_windows) {
  const ElementType type = calls[0]->type;
  float total = load(calls[0]->parts[part].send, type, index);
  for (std::size_t member = 1; member < calls.size(); ++member) {
    total += load(calls[member]->parts[part].send, type, index);
    if (!in_windows) {
      std::uint32_t rounded = 0;
      store(&rounded, type, 0, total);
      total = load(&rounded, type, 0);
    }
  }
  return total;
}

void gather(std::span<const CollectiveCall* const> calls, std::size_t part) {
  const std::size_t bytes = calls[0]->parts[part].count * element_bytes(calls[0]->type);
  for (const CollectiveCall* to : calls) {
    for (std::size_t from = 0; from < calls.size(); ++from) {
      std::memcpy(offset(to->parts[part].receive, from * bytes), calls[from]->parts[part].send, bytes);
    }
  }
}

void exchange(std::span<const CollectiveCall* const> calls, std::size_t part) {
  const std::size_t bytes = calls[0]->parts[part].count * element_bytes(calls[0]->type);
  for (std::size_t to = 0; to < calls.size(); ++to) {
    for (std::size_t from = 0; from < calls.size(); ++from) {
      std::memcpy(offset(calls[to]->parts[part].receive, from * bytes),
                  offset(calls[from]->parts[part].send, to * bytes), bytes);
    }
  }
}

void reduce_scatter(std::span<const CollectiveCall* const> calls, std::size_t part, bool in_windows) {
  const std::size_t count = calls[0]->parts[part].count;
  for (std::size_t to = 0; to < calls.size(); ++to) {
    for (std::size_t index = 0; index < count; ++index) {
      store(calls[to]->parts[part].receive, calls[0]->type, index, sum(calls, part, to * count + index, in_windows));
    }
  }
}

void all_reduce(std::span<const CollectiveCall* const> calls, std::size_t part, bool in_windows) {
  for (std::size_t index = 0; index < calls[0]->parts[part].count; ++index) {
    const float total = sum(calls, part, index, in_windows);  // in place: every member's input is read first
    for (const CollectiveCall* to : calls) store(to->parts[part].receive, calls[0]->type, index, total);
  }
}

}  // namespace

float load(const void* data, ElementType type, std::size_t index) noexcept {
  switch (type) {
    case ElementType::kByte:
      return static_cast<float>(static_cast<const std::uint8_t*>(data)[index]);
    case ElementType::kBFloat16: {
      std::uint16_t bits = 0;
      std::memcpy(&bits, offset(data, index * sizeof bits), sizeof bits);
      return to_float(Bf16{bits});
    }
    case ElementType::kFloat32: {
      float value = 0;
      std::memcpy(&value, offset(data, index * sizeof value), sizeof value);
      return value;
    }
  }
  return 0;
}

void store(void* data, ElementType type, std::size_t index, float value) noexcept {
  switch (type) {
    case ElementType::kByte:
      static_cast<std::uint8_t*>(data)[index] = static_cast<std::uint8_t>(value);
      return;
    case ElementType::kBFloat16: {
      const std::uint16_t bits = bits_of(to_bf16(value));
      std::memcpy(offset(data, index * sizeof bits), &bits, sizeof bits);
      return;
    }
    case ElementType::kFloat32:
      std::memcpy(offset(data, index * sizeof value), &value, sizeof value);
      return;
  }
}

std::string_view collective_name(CollectiveKind kind) noexcept {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return host_op::kAllGather;
    case CollectiveKind::kReduceScatter:
      return host_op::kReduceScatter;
    case CollectiveKind::kAllToAll:
      return host_op::kAllToAll;
    case CollectiveKind::kAllReduce:
      return host_op::kAllReduce;
  }
  return "";
}

void run_collective(std::span<const CollectiveCall* const> calls, bool in_windows) {
  for (std::size_t part = 0; part < calls[0]->parts.size(); ++part) {
    switch (calls[0]->kind) {
      case CollectiveKind::kAllGather:
        gather(calls, part);
        break;
      case CollectiveKind::kReduceScatter:
        reduce_scatter(calls, part, in_windows);
        break;
      case CollectiveKind::kAllToAll:
        exchange(calls, part);
        break;
      case CollectiveKind::kAllReduce:
        all_reduce(calls, part, in_windows);
        break;
    }
  }
}

}  // namespace gtp::host
