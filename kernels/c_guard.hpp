// What every function of the C ABI does around its body: no exception leaves, handles are checked. Private to
// c_api*.cpp.
#pragma once

#include <fmt/format.h>

#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "gtp/runtime.h"
#include "kernels/c_handles.hpp"
#include "kernels/error.hpp"

namespace gtp::capi {

/// What gtp_last_error() of this thread returns from now on.
void set_last_error(std::string_view text) noexcept;

inline gtp_status status_of(RuntimeStatus status) noexcept {
  switch (status) {
    case RuntimeStatus::kInvalidPlan:
      return GTP_INVALID_PLAN;
    case RuntimeStatus::kInvalidUse:
      return GTP_INVALID_USE;
    case RuntimeStatus::kOutOfMemory:
      return GTP_OUT_OF_MEMORY;
    case RuntimeStatus::kCollectiveFailed:
      return GTP_COLLECTIVE_FAILED;
    case RuntimeStatus::kTimeout:
      return GTP_TIMEOUT;
    case RuntimeStatus::kAborted:
      return GTP_ABORTED;
    case RuntimeStatus::kCaptureFailed:
      return GTP_CAPTURE_FAILED;
  }
  return GTP_INTERNAL_ERROR;
}

inline gtp_status failed(gtp_status status, std::string_view text) noexcept {
  set_last_error(text);
  return status;
}

template <class F>
gtp_status guard(F&& body) noexcept {
  try {
    body();
    set_last_error("");
    return GTP_OK;
  } catch (const InvalidArgument& error) {
    return failed(GTP_INVALID_ARGUMENT, error.what());
  } catch (const RuntimeError& error) {
    return failed(status_of(error.status()), error.text());
  } catch (const std::bad_alloc&) {
    return failed(GTP_OUT_OF_MEMORY, "the host has no memory left");
  } catch (const std::exception& error) {
    return failed(GTP_INTERNAL_ERROR, error.what());
  } catch (...) {
    return failed(GTP_INTERNAL_ERROR, "an exception of an unknown type");
  }
}

[[noreturn]] inline void refuse_use(std::string text) {
  throw RuntimeError(RuntimeStatus::kInvalidUse, std::move(text));
}

template <class Handle>
Handle& require(Handle* handle, HandleKind kind) {
  if (handle == nullptr) throw InvalidArgument(fmt::format("the {} is NULL", handle_name(kind)));
  if (!handles().has(handle, kind)) {
    throw InvalidArgument(fmt::format("the {} was destroyed or never made", handle_name(kind)));
  }
  return *handle;
}

}  // namespace gtp::capi
