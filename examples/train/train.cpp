#include "train.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "kernels/bookkeeping/run_accounting.hpp"
#include "model.hpp"

namespace gtp::train {

namespace {

RuntimeOptions runtime_options(const PlanValues& plan, const ModelShape& shape, const TrainOptions& options) {
  RuntimeOptions out = options.runtime;
  // In a graph of a whole step every weight gradient has a send buffer of its own.
  if (options.graph) out.graph_wgrad_ring_size = static_cast<std::uint32_t>(tensors_of(shape).size());
  out.calculate_per_token_loss = plan.calculate_per_token_loss;
  out.gtp_remat_reduce_scatter_with_fp32_accumulation = plan.gtp_remat_reduce_scatter_with_fp32_accumulation;
  return out;
}

BatchShape batch_shape(std::int64_t samples, const ModelShape& shape) {
  return {static_cast<std::size_t>(samples), shape.seq};
}

class Run {
 public:
  Run(const PlanValues& plan, const ModelShape& shape, const TrainOptions& options, const RankBackend& transport)
      : plan_(plan),
        shape_(shape),
        options_(options),
        rank_(transport, plan.topology, runtime_options(plan, shape, options)),
        parameters_(rank_, shape_, {options.seed, options.wire, options.weight_format, options.graph}),
        model_({rank_, parameters_, shape_, batch_shape(plan.batch.micro_batch_size, shape)}, options.seed),
        optimizer_(rank_, parameters_, plan_, options.seed) {
    if (plan.batch_options.eval_iters <= 0) return;
    const BatchShape batch = batch_shape(plan.batch.eval_micro_batch_size, shape);
    eval_model_.emplace(BlockContext{rank_, parameters_, shape_, batch}, options.seed);
  }

  TrainLog run() {
    BatchRows rows(plan_.batch, plan_.batch_options);
    consumed_ = plan_.batch_options.consumed_train_samples;
    lr_samples_ = consumed_;
    const std::int64_t last = last_iteration();
    std::int64_t iteration = plan_.batch_options.iteration;
    while (iteration < last) {
      const auto row = rows.next();
      if (!row) throw RuntimeError(RuntimeStatus::kInvalidPlan, "the samples of the run cannot be counted");
      iteration = row->iteration;
      train_step(*row);
      if (evaluates_after(iteration)) evaluate(iteration);
    }
    report_steps();
    if (plan_.batch_options.eval_iters > 0) evaluate(iteration);
    if (options_.collect_weights) log_.pieces = optimizer_.pieces(options_.limit);
    log_.counters = rank_.gtp().counters();
    log_.calls = rank_.calls();
    log_.chains = rank_.gtp().chain_table();
    return std::move(log_);
  }

 private:
  std::int64_t last_iteration() const {
    const std::int64_t begin = plan_.batch_options.iteration;
    return options_.steps ? begin + *options_.steps : plan_.train_iters;
  }

  bool evaluates_after(std::int64_t iteration) const {
    const BatchOptions& o = plan_.batch_options;
    if (o.eval_iters <= 0 || o.eval_interval.value_or(0) <= 0 || iteration % *o.eval_interval != 0) return false;
    return iteration >= o.start_eval_at_iter.value_or(0);
  }

  std::int64_t lane() const { return rank_.groups().gtp_remat_dp.position(); }

  void train_step(const BatchRow& row) {
    StepLog& step = log_.steps.emplace_back();
    step.iteration = row.iteration;
    step.num_microbatches = row.num_microbatches;
    step.global_batch_size = row.global_batch_size;
    step.skipped = row.skipped;
    step.learning_rate = learning_rate(plan_, lr_samples_);
    step.lr_increment_samples = row.lr_increment_samples;
    if (!row.skipped) compute_step(row, step);
    lr_samples_ += row.lr_increment_samples;
    consumed_ = step.consumed_train_samples = row.consumed_train_samples;
    if (static_cast<std::int64_t>(log_.steps.size() - reported_) >= options_.log_interval) report_steps();
  }

  void compute_step(const BatchRow& row, const StepLog& step) {
    const std::int64_t mbs = plan_.batch.micro_batch_size;
    const std::int64_t tokens_of_lane = row.num_microbatches * mbs * static_cast<std::int64_t>(shape_.seq);
    const float scale = plan_.calculate_per_token_loss ? 1.0F : 1.0F / static_cast<float>(tokens_of_lane);
    model_.begin_step(consumed_);
    if (options_.graph) capture(row.num_microbatches, scale);
    optimizer_.zero_grads();
    model_.reset_loss();
    if (options_.graph) {
      rank_.gtp().replay(*graphs_.at(row.num_microbatches), rank_.compute());
    } else {
      differentiate(row.num_microbatches, scale);
    }
    optimizer_.step(step.learning_rate, tokens_of_lane * plan_.batch.lanes);
    measure(model_, tokens_of_lane);
  }

  void differentiate(std::int64_t microbatches, float scale) {
    for (std::int64_t m = 0; m < microbatches; ++m) {
      model_.forward(DataSplit::kTrain, (m * plan_.batch.lanes + lane()) * plan_.batch.micro_batch_size);
      model_.backward(scale);
    }
  }

  /// Leaves gradients and losses undefined.
  void capture(std::int64_t microbatches, float scale) {
    if (graphs_.contains(microbatches)) return;
    Runtime& gtp = rank_.gtp();
    optimizer_.zero_grads();
    model_.reset_loss();
    gtp.begin_warmup(rank_.compute());
    differentiate(microbatches, scale);
    gtp.end_warmup(rank_.compute());
    GraphScope& scope = gtp.begin_capture(fmt::format("step of {} microbatches", microbatches), rank_.compute());
    differentiate(microbatches, scale);
    gtp.end_capture(scope);
    graphs_[microbatches] = &scope;
  }

  /// What the device is to leave for the host: a value a lane, then the gradient norm.
  struct Measurement {
    std::size_t step = 0;
    std::int64_t tokens_of_lane = 0;
    std::span<double> losses;
    std::span<double> norm;
  };

  void measure(const Model& model, std::int64_t tokens_of_lane) {
    const Group& lanes = rank_.groups().gtp_remat_dp;
    if (used_ == measurements_.size()) {
      measurements_.push_back(
          {0, 0, rank_.memory<double>(static_cast<std::size_t>(lanes.size())), rank_.memory<double>(1)});
    }
    Measurement& slot = measurements_[used_++];
    slot.step = log_.steps.size() - 1;
    slot.tokens_of_lane = tokens_of_lane;
    const std::span<const double> clip = optimizer_.clip();
    rank_.copy(rank_.task("gradients", "measure"), slot.norm, clip.first(1));
    if (lanes.size() > 1) {
      rank_.all_gather(lanes, std::as_writable_bytes(slot.losses), std::as_bytes(model.losses()), {"loss", "mean"},
                       rank_.calls().norm_and_loss);
      return;
    }
    rank_.copy(rank_.task("loss", "mean"), slot.losses, model.losses());
  }

  /// Over all lanes. Waits for the device.
  double mean_loss(const Measurement& slot) {
    std::vector<double> means;
    for (const double sum : rank_.read_back(slot.losses, options_.limit))
      means.push_back(sum / static_cast<double>(slot.tokens_of_lane));
    return evaluation_loss(means, rank_.topology()).value_or(0.0);
  }

  /// Waits for the device and completes the steps since the last time.
  void report_steps() {
    for (std::size_t i = 0; i < used_; ++i) {
      StepLog& step = log_.steps[measurements_[i].step];
      step.loss = mean_loss(measurements_[i]);
      step.grad_norm = rank_.read_back(measurements_[i].norm, options_.limit)[0];
      if (!std::isfinite(step.grad_norm)) {
        throw RuntimeError(RuntimeStatus::kAborted, "the gradient norm is not finite");
      }
    }
    used_ = 0;
    for (; reported_ < log_.steps.size(); ++reported_) {
      if (options_.on_step) options_.on_step(log_.steps[reported_]);
    }
  }

  void evaluate(std::int64_t iteration) {
    const BatchPlan& batch = plan_.batch;
    const std::int64_t mbs = batch.eval_micro_batch_size;
    const std::int64_t iterations = plan_.batch_options.eval_iters;
    report_steps();
    eval_model_->reset_loss();
    eval_model_->begin_step(0);
    for (std::int64_t i = 0; i < iterations; ++i) {
      for (std::int64_t m = 0; m < batch.eval_num_microbatches; ++m) {
        eval_model_->forward(DataSplit::kValidation, log_.consumed_valid_samples + (m * batch.lanes + lane()) * mbs);
        eval_model_->evaluate();
      }
      log_.consumed_valid_samples += batch.eval_global_batch_size;
    }
    rank_.gtp().fence_grads(rank_.compute());
    const std::int64_t tokens = iterations * batch.eval_num_microbatches * mbs * static_cast<std::int64_t>(shape_.seq);
    measure(*eval_model_, tokens);
    const double loss = mean_loss(measurements_[--used_]);
    log_.evaluations.push_back({iteration, loss, iterations, batch.eval_samples});
    if (options_.on_evaluation) options_.on_evaluation(log_.evaluations.back());
  }

  const PlanValues& plan_;
  const ModelShape& shape_;
  const TrainOptions& options_;
  Rank rank_;
  Parameters parameters_;
  Model model_;
  std::optional<Model> eval_model_;
  Optimizer optimizer_;
  std::map<std::int64_t, GraphScope*> graphs_;  ///< By number of microbatches. The runtime owns them.
  std::deque<Measurement> measurements_;        ///< Reused after each report; the first `used_` are pending.
  std::size_t used_ = 0;
  std::size_t reported_ = 0;
  std::int64_t consumed_ = 0;
  std::int64_t lr_samples_ = 0;
  TrainLog log_;
};

}  // namespace

TrainLog train(const PlanValues& plan, const ModelShape& shape, const TrainOptions& options,
               const RankBackend& transport) {
  if (const std::string why = refusal(plan, shape); !why.empty()) throw RuntimeError(RuntimeStatus::kInvalidPlan, why);
  return Run(plan, shape, options, transport).run();
}

}  // namespace gtp::train
