// The arithmetic kernels against the formulas of the host backend, bit for bit.
#include <doctest/doctest.h>

#include "device_data.hpp"
#include "kernels/cuda/reduce_kernels.hpp"
#include "kernels/error.hpp"

namespace {

using namespace device_data;
using namespace gtp;

constexpr ElementType kTypes[] = {ElementType::kBFloat16, ElementType::kFloat32};

/// Values of a type: the bytes, and what they are worth.
struct Typed {
  ElementType type;
  ByteVector bytes;
  std::vector<float> values;
};

Typed typed(ElementType type, const std::vector<float>& values) {
  Typed result{type, {}, values};
  if (type == ElementType::kFloat32) {
    const auto* begin = reinterpret_cast<const std::uint8_t*>(values.data());
    result.bytes.assign(begin, begin + 4 * values.size());
    return result;
  }
  const std::vector<Bf16> rounded = as_bf16(values);
  result.bytes = bytes_of(rounded);
  for (std::size_t i = 0; i < values.size(); ++i) result.values[i] = to_float(rounded[i]);
  return result;
}

/// Volatile keeps the host compiler from fusing the product into the sum.
float accumulate(float before, float factor, float sum) {
  const volatile float product = factor * sum;
  return before + product;
}

struct Layout {
  std::size_t to_offset = 0, from_offset = 0;  ///< In elements.
  bool captured = false;
};

/// With one chunk, add_into and sum_chunks_into must agree.
void check_sum(const Typed& before, const Typed& source, std::size_t chunks, float factor, const Layout& layout) {
  const std::size_t count = before.values.size();
  std::vector<float> expected(count);
  const int replays = layout.captured ? 2 : 1;
  for (std::size_t i = 0; i < count; ++i) {
    float sum = source.values[i];
    for (std::size_t c = 1; c < chunks; ++c) sum += source.values[c * count + i];
    float value = before.values[i];
    for (int replay = 0; replay < replays; ++replay) {
      value = accumulate(value, factor, sum);
      if (before.type == ElementType::kBFloat16) value = to_float(to_bf16(value));
    }
    expected[i] = value;
  }
  const std::string name =
      name_of("sum_chunks_into", static_cast<std::int64_t>(chunks), static_cast<std::int64_t>(count),
              std::string(element_name(before.type)) + " += " + std::string(element_name(source.type)) + " offsets " +
                  std::to_string(layout.to_offset) + ", " + std::to_string(layout.from_offset));
  for (const bool add : {false, true}) {
    if (add && chunks != 1) continue;
    const Buffer to(before.bytes, layout.to_offset * element_bytes(before.type));
    const Buffer from(source.bytes, layout.from_offset * element_bytes(source.type));
    const auto enqueue = [&] {
      if (add) {
        cuda::add_into(to.data(), before.type, from.data(), source.type, static_cast<std::int64_t>(count), factor,
                       stream());
      } else {
        cuda::sum_chunks_into(to.data(), before.type, from.data(), source.type, static_cast<std::int64_t>(count),
                              static_cast<std::int64_t>(chunks), factor, stream());
      }
    };
    layout.captured ? run_captured(enqueue) : run(enqueue);
    check_values(name, before.type == ElementType::kBFloat16, to.fetch(name), expected);
    check_same(name + " source", from.fetch(name), source.bytes);
  }
}

template <class Values>
void check_sums(std::size_t count, std::size_t chunks, float factor, const Layout& layout, const Values& make) {
  for (const ElementType to : kTypes) {
    for (const ElementType from : kTypes) {
      check_sum(typed(to, make(count, 3)), typed(from, make(count * chunks, 5)), chunks, factor, layout);
    }
  }
}

void check_copy(const Typed& source, ElementType to, const Layout& layout) {
  const std::size_t count = source.values.size();
  const std::string name = name_of("copy", 1, static_cast<std::int64_t>(count),
                                   std::string(element_name(source.type)) + " to " + std::string(element_name(to)));
  const Buffer from(source.bytes, layout.from_offset * element_bytes(source.type));
  const Buffer target(count * element_bytes(to), layout.to_offset * element_bytes(to));
  const auto enqueue = [&] {
    cuda::copy(target.data(), to, from.data(), source.type, static_cast<std::int64_t>(count), stream());
  };
  layout.captured ? run_captured(enqueue) : run(enqueue);
  if (to == source.type) return check_same(name, target.fetch(name), source.bytes);
  check_values(name, to == ElementType::kBFloat16, target.fetch(name), source.values);
}

void check_scale(const Typed& before, float factor, const Layout& layout) {
  const std::size_t count = before.values.size();
  std::vector<float> expected = before.values;
  for (float& value : expected) {
    value *= factor;
    if (before.type == ElementType::kBFloat16) value = to_float(to_bf16(value));
    if (layout.captured) value *= factor;
  }
  const std::string name =
      name_of("scale", 1, static_cast<std::int64_t>(count), std::string(element_name(before.type)));
  const Buffer data(before.bytes, layout.to_offset * element_bytes(before.type));
  const auto enqueue = [&] {
    cuda::scale(data.data(), before.type, static_cast<std::int64_t>(count), factor, stream());
  };
  layout.captured ? run_captured(enqueue) : run(enqueue);
  check_values(name, before.type == ElementType::kBFloat16, data.fetch(name), expected);
}

constexpr std::size_t kCounts[] = {1, 3, 4, 7, 8, 9, 255, 1024, 4096, 4100, 65543, 1048576};

}  // namespace

TEST_CASE("sums of chunks have the bits of the host backend for every group size") {
  for (const std::size_t chunks : {1UL, 2UL, 3UL, 4UL, 5UL, 8UL, 9UL, 16UL}) {
    for (const std::size_t count : {1UL, 8UL, 13UL, 1024UL, 4104UL, 100001UL}) {
      check_sums(count, chunks, 0.3F, {}, random_floats);
    }
  }
}

TEST_CASE("sums of chunks survive NaNs, infinities, subnormals and negative zeros") {
  for (const std::size_t chunks : {1UL, 2UL, 8UL, 9UL}) {
    for (const float factor : {1.0F, -0.25F, 0.0F, 1e30F}) check_sums(20000, chunks, factor, {}, wild_floats);
    check_sums(64, chunks, 1.0F, {}, [](std::size_t count, std::uint64_t) { return std::vector<float>(count, -0.0F); });
  }
}

TEST_CASE("sums work at every alignment of destination and source") {
  for (std::size_t to = 0; to < 16; ++to) {
    for (std::size_t from = 0; from < 16; from += to % 2 + 1) {
      check_sums(1037, 1, 0.5F, {to, from}, random_floats);
      check_sums(1032, 4, 0.5F, {to, from}, random_floats);
    }
  }
}

TEST_CASE("copies convert every count, alignment and value") {
  for (const ElementType from : kTypes) {
    for (const ElementType to : kTypes) {
      for (const std::size_t count : kCounts) check_copy(typed(from, random_floats(count, count)), to, {});
      for (std::size_t offset = 0; offset < 16; ++offset) {
        check_copy(typed(from, random_floats(1037, offset)), to, {offset, 0});
        check_copy(typed(from, random_floats(1037, offset)), to, {offset, offset});
        check_copy(typed(from, random_floats(1037, offset)), to, {0, offset, true});
      }
      check_copy(typed(from, wild_floats(300000, 7)), to, {});
    }
  }
}

TEST_CASE("scaling rounds once, for every count, alignment and value") {
  for (const ElementType type : kTypes) {
    for (const std::size_t count : kCounts) check_scale(typed(type, random_floats(count, count)), 0.7F, {});
    for (std::size_t offset = 0; offset < 16; ++offset) {
      check_scale(typed(type, random_floats(1037, offset)), 3.3F, {offset});
      check_scale(typed(type, random_floats(1037, offset)), 3.3F, {offset, 0, true});
    }
    for (const float factor : {1.0F, 0.0F, 1e-20F, -1e30F})
      check_scale(typed(type, wild_floats(300000, 3)), factor, {});
  }
}

TEST_CASE("sums can be captured in a graph and replayed") {
  for (const std::size_t chunks : {1UL, 3UL, 8UL}) check_sums(1024, chunks, 0.3F, {0, 0, true}, random_floats);
}

TEST_CASE("more than 2^31 elements are scaled, converted and added to their end") {
  const std::int64_t count = (std::int64_t{1} << 31) + 1027;
  const std::size_t last = 4096;
  const std::vector<float> values = random_floats(last, 61);
  std::uint8_t *wide = nullptr, *narrow = nullptr;
  must(cudaMalloc(&wide, static_cast<std::size_t>(count) * 4));
  must(cudaMalloc(&narrow, static_cast<std::size_t>(count) * 2));
  must(cudaMemset(wide, 0, static_cast<std::size_t>(count) * 4));
  std::uint8_t* const end = wide + static_cast<std::size_t>(count) * 4 - last * 4;
  must(cudaMemcpy(end, values.data(), last * 4, cudaMemcpyHostToDevice));
  must(cudaDeviceSynchronize());
  run([&] {
    cuda::copy(narrow, ElementType::kBFloat16, wide, ElementType::kFloat32, count, stream());
    cuda::scale(wide, ElementType::kFloat32, count, 1.5F, stream());
    cuda::add_into(wide, ElementType::kFloat32, narrow, ElementType::kBFloat16, count, 0.3F, stream());
  });
  std::vector<float> expected(last);
  for (std::size_t i = 0; i < last; ++i) {
    const volatile float scaled = values[i] * 1.5F;
    expected[i] = accumulate(scaled, 0.3F, to_float(to_bf16(values[i])));
  }
  ByteVector actual(last * 4);
  must(cudaMemcpy(actual.data(), end, last * 4, cudaMemcpyDeviceToHost));
  check_same_fp32("add_into beyond 2^31", actual, expected);
  for (std::uint8_t* memory : {wide, narrow}) must(cudaFree(memory));
}

TEST_CASE("impossible reductions are refused and empty ones do nothing") {
  const Buffer buffer(256);
  const auto status_of = [](const auto& function) {
    try {
      function();
    } catch (const RuntimeError& error) {
      return error.status() == RuntimeStatus::kInvalidUse;
    }
    return false;
  };
  const auto bf16 = ElementType::kBFloat16, fp32 = ElementType::kFloat32;
  std::uint8_t* data = buffer.data();
  CHECK(status_of([&] { cuda::sum_chunks_into(data, fp32, data, bf16, 4, 0, 1.0F, stream()); }));
  CHECK(status_of([&] { cuda::sum_chunks_into(data, fp32, data, bf16, -4, 1, 1.0F, stream()); }));
  CHECK(status_of([&] { cuda::add_into(data, ElementType::kByte, data, bf16, 4, 1.0F, stream()); }));
  CHECK(status_of([&] { cuda::add_into(nullptr, fp32, data, bf16, 4, 1.0F, stream()); }));
  CHECK(status_of([&] { cuda::add_into(data + 2, fp32, data, bf16, 4, 1.0F, stream()); }));
  CHECK(status_of([&] { cuda::scale(data, bf16, -1, 1.0F, stream()); }));
  CHECK(status_of([&] { cuda::copy(data, bf16, nullptr, fp32, 4, stream()); }));
  run([&] {
    cuda::sum_chunks_into(nullptr, fp32, nullptr, bf16, 0, 8, 1.0F, stream());
    cuda::scale(nullptr, bf16, 0, 1.0F, stream());
    cuda::copy(nullptr, fp32, nullptr, fp32, 0, stream());
  });
  check_same("empty calls", buffer.fetch("empty calls"), ByteVector(256, 0xA5));
}
