// Apart from the tests: inlined into them, GCC 12 takes the replaced operators for a mismatch. ThreadSanitizer brings
// operators of its own, which cannot be replaced with clang: nothing is counted there.
#include "counting_new.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

#if defined(__has_feature)
#define GTP_COUNTS_NEW !__has_feature(thread_sanitizer)
#else
#define GTP_COUNTS_NEW 1
#endif

#if GTP_COUNTS_NEW

namespace {

std::atomic<std::int64_t> allocations{0};

void* counted(std::size_t bytes) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void* counted(std::size_t bytes, std::align_val_t alignment) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const auto unit = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(unit, (bytes / unit + 1) * unit);
}

void* or_throw(void* data) {
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

namespace gtp::test {

std::int64_t host_allocations() noexcept { return allocations.load(std::memory_order_relaxed); }

}  // namespace gtp::test

void* operator new(std::size_t bytes) { return or_throw(counted(bytes)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return or_throw(counted(bytes, alignment)); }
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted(bytes, alignment);
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t, const std::nothrow_t&) noexcept { std::free(data); }

#else

namespace gtp::test {

std::int64_t host_allocations() noexcept { return 0; }

}  // namespace gtp::test

#endif
