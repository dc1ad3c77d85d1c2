// What a GlooWorld holds. Private to gloo_*.cpp; callers use gloo_backend.hpp.
#pragma once

#include <memory>

#include "kernels/gloo_backend.hpp"
#include "kernels/gloo_group.hpp"
#include "kernels/tcp_store.hpp"

namespace gtp {

struct GlooWorld::Impl {
  explicit Impl(GlooConfig given);
  ~Impl();

  GlooConfig config;
  std::unique_ptr<TcpStoreServer> server;  ///< On rank 0.
  std::unique_ptr<TcpStore> store;
  std::shared_ptr<::gloo::transport::Device> device;
  std::unique_ptr<GlooBackend> backend;
};

}  // namespace gtp
