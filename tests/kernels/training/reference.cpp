#include "reference.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "examples/train/exact_sum.hpp"
#include "gtp/groups.hpp"

namespace gtp::test {

using namespace train;

namespace {

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

/// The lane (data distribution) of the rank at given positions of three families; tensor-parallel rank 0.
std::size_t lane_of(const Topology& t, std::string_view replica_family, std::int64_t replica,
                    std::string_view shard_family, std::int64_t shard, std::string_view third_family,
                    std::int64_t third) {
  const auto position = [&](std::string_view family, std::int64_t rank) {
    return make_group_family(t, *find_group_family(family)).group_of(rank)->position;
  };
  for (std::int64_t rank = 0; rank < t.world_size; ++rank) {
    if (position(replica_family, rank) == replica && position(shard_family, rank) == shard &&
        position(third_family, rank) == third) {
      return size(position("gtp_remat_dp", rank));
    }
  }
  return 0;
}

/// By lane, then microbatch.
using Grads = std::vector<std::vector<Tensors>>;

void add_scaled(Vector& to, const Vector& from, float factor) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += factor * from[i];
}

/// Sum over replicas of (sum over microbatches of mean over shards of sum over EP peers).
Vector sharded_grad(const std::string& name, const PlanValues& plan, bool expert, const Grads& grads) {
  const Topology& t = plan.topology;
  const std::int64_t replicas = expert ? t.edp : t.dp;
  const std::int64_t shards = expert ? t.egtp_remat : t.gtp_remat;
  const float factor = plan.calculate_per_token_loss ? 1.0F : 1.0F / static_cast<float>(shards);
  Vector total(grads[0][0].at(name).size(), 0.0F);
  for (std::int64_t replica = 0; replica < replicas; ++replica) {
    Vector accumulated(total.size(), 0.0F);
    for (std::size_t m = 0; m < grads[0].size(); ++m) {
      Vector sum;
      for (std::int64_t shard = 0; shard < shards; ++shard) {
        Vector of_rank;
        for (std::int64_t peer = 0; peer < (expert ? t.ep : 1); ++peer) {
          const std::size_t lane = expert ? lane_of(t, "ep_dp", replica, "expt_gtp_remat", shard, "ep", peer)
                                          : lane_of(t, "dp_cp", replica, "gtp_remat", shard, "tp", 0);
          const Vector& grad = grads[lane][m].at(name);
          if (of_rank.empty())
            of_rank = grad;
          else
            add_scaled(of_rank, grad, 1.0F);
        }
        if (sum.empty())
          sum = of_rank;
        else
          add_scaled(sum, of_rank, 1.0F);
      }
      add_scaled(accumulated, sum, factor);
    }
    if (replica == 0)
      total = accumulated;
    else
      add_scaled(total, accumulated, 1.0F);
  }
  return total;
}

/// Sum over replicas of the mean over GTP_remat of the sum over microbatches.
Vector replicated_grad(const std::string& name, const PlanValues& plan, const Grads& grads) {
  const Topology& t = plan.topology;
  const float factor = plan.calculate_per_token_loss ? 1.0F : 1.0F / static_cast<float>(t.gtp_remat);
  Vector total(grads[0][0].at(name).size(), 0.0F);
  for (std::int64_t replica = 0; replica < t.dp; ++replica) {
    Vector sum;
    for (std::int64_t shard = 0; shard < t.gtp_remat; ++shard) {
      Vector accumulated(total.size(), 0.0F);
      const std::size_t lane = lane_of(t, "dp_cp", replica, "gtp_remat", shard, "tp", 0);
      for (const Tensors& microbatch : grads[lane]) add_scaled(accumulated, microbatch.at(name), 1.0F);
      if (sum.empty())
        sum = accumulated;
      else
        add_scaled(sum, accumulated, 1.0F);
    }
    for (float& value : sum) value *= factor;
    if (replica == 0)
      total = sum;
    else
      add_scaled(total, sum, 1.0F);
  }
  return total;
}

Tensors step_grads(const PlanValues& plan, const ReferenceModel& model, const Grads& grads, std::int64_t tokens) {
  const Topology& t = plan.topology;
  Tensors out;
  for (const TensorSpec& spec : model.specs()) {
    for (std::size_t e = 0; e < std::max<std::size_t>(spec.experts, 1); ++e) {
      const std::string name = spec.is_expert() ? spec.name + "." + std::to_string(e) : spec.name;
      Vector& grad = out[name] =
          spec.sharded ? sharded_grad(name, plan, spec.is_expert(), grads) : replicated_grad(name, plan, grads);
      // Lanes that read different samples number dp x gtp_remat, whatever holds the expert.
      float factor = 1.0F / static_cast<float>(t.dp);
      if (spec.is_expert()) factor = static_cast<float>(t.egtp_remat) / static_cast<float>(t.dp * t.gtp_remat);
      if (plan.calculate_per_token_loss) factor = 1.0F / static_cast<float>(tokens);
      for (float& value : grad) value *= factor;
    }
  }
  return out;
}

class Adam {
 public:
  explicit Adam(const PlanValues& plan) : plan_(plan) {}

  void apply(ReferenceModel& model, const Tensors& grads, double lr, float clip) {
    ++steps_;
    const auto correction = [&](double beta) { return static_cast<float>(1.0 - std::pow(beta, steps_)); };
    const auto beta1 = static_cast<float>(plan_.adam_beta1);
    const auto beta2 = static_cast<float>(plan_.adam_beta2);
    const auto eps = static_cast<float>(plan_.adam_eps);
    for (auto& [name, master] : model.masters) {
      const bool decays = name.find("norm") == std::string::npos;
      const float decay = decays ? static_cast<float>(plan_.weight_decay) : 0.0F;
      Vector& m = first_[name];
      Vector& v = second_[name];
      m.resize(master.size());
      v.resize(master.size());
      for (std::size_t i = 0; i < master.size(); ++i) {
        const float grad = grads.at(name)[i] * clip;
        m[i] = beta1 * m[i] + (1.0F - beta1) * grad;
        v[i] = beta2 * v[i] + (1.0F - beta2) * grad * grad;
        const float direction =
            m[i] / correction(plan_.adam_beta1) / (std::sqrt(v[i] / correction(plan_.adam_beta2)) + eps);
        master[i] = master[i] - static_cast<float>(lr) * (direction + decay * master[i]);
      }
    }
    model.round_weights();
  }

 private:
  const PlanValues& plan_;
  Tensors first_, second_;
  int steps_ = 0;
};

/// The exact sum rounds to the double that ranks use; the plain one is what it must be close to.
float clip_factor(const PlanValues& plan, const Tensors& grads, double& plain_norm) {
  ExactSum exact;
  double squares = 0.0;
  for (const auto& [name, grad] : grads) {
    for (const float value : grad) {
      exact.add_square(value);
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
  }
  plain_norm = std::sqrt(squares);
  if (plan.clip_grad <= 0) return 1.0F;
  return static_cast<float>(std::min(1.0, plan.clip_grad / (std::sqrt(exact.value()) + 1e-6)));
}

}  // namespace

ReferenceLog run_reference(const PlanValues& plan, const ModelShape& shape, std::uint64_t seed, std::int64_t steps) {
  ReferenceModel model(shape, seed, size(plan.topology.tp));
  Adam adam(plan);
  BatchRows rows(plan.batch, plan.batch_options);
  ReferenceLog log;
  std::int64_t consumed = 0;
  std::int64_t lr_samples = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const BatchRow row = *rows.next();
    if (row.skipped) {
      log.losses.push_back(0.0);
      log.grad_norms.push_back(0.0);
      consumed = row.consumed_train_samples;
      continue;
    }
    const std::int64_t mbs = plan.batch.micro_batch_size;
    const std::int64_t tokens = row.num_microbatches * mbs * static_cast<std::int64_t>(shape.seq);
    const float scale = plan.calculate_per_token_loss ? 1.0F : 1.0F / static_cast<float>(tokens);
    Grads grads(size(plan.batch.lanes), std::vector<Tensors>(size(row.num_microbatches)));
    double loss = 0.0;
    for (std::int64_t lane = 0; lane < plan.batch.lanes; ++lane) {
      double of_lane = 0.0;
      for (std::int64_t m = 0; m < row.num_microbatches; ++m) {
        of_lane += model.microbatch(seed, consumed + (m * plan.batch.lanes + lane) * mbs, size(mbs), scale,
                                    grads[size(lane)][size(m)]);
      }
      loss += of_lane / static_cast<double>(tokens);
    }
    log.losses.push_back(loss / static_cast<double>(plan.batch.lanes));
    const Tensors total = step_grads(plan, model, grads, tokens * plan.batch.lanes);
    const float clip = clip_factor(plan, total, log.grad_norms.emplace_back());
    adam.apply(model, total, learning_rate(plan, lr_samples), clip);
    lr_samples += row.lr_increment_samples;
    consumed = row.consumed_train_samples;
  }
  log.weights = model.masters;
  return log;
}

}  // namespace gtp::test
