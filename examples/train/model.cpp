#include "model.hpp"

#include <fmt/format.h>

namespace gtp::train {

Model::Model(const BlockContext& context, std::uint64_t seed)
    : rank_(context.rank),
      shape_(context.shape),
      batch_(context.batch),
      seed_(seed),
      embedding_(context.parameters.find("embedding")),
      position_(context.parameters.find("position")),
      final_norm_(context, "final_norm"),
      head_(context, "head"),
      step_begin_(rank_.memory<std::int64_t>(1)),
      tokens_(rank_.memory<std::int32_t>(batch_.tokens())),
      targets_(rank_.memory<std::int32_t>(batch_.tokens())),
      logits_(rank_.floats(batch_.tokens() * head_.out())),
      gathered_logits_(logits_),
      dlogits_(rank_.floats(logits_.size())),
      d_normed_(rank_.floats(batch_.tokens() * shape_.hidden)),
      d_(rank_.floats(d_normed_.size())),
      losses_(rank_.memory<double>(1)) {
  if (rank_.topology().tp > 1) gathered_logits_ = rank_.floats(batch_.tokens() * shape_.vocab);
  for (std::size_t i = 0; i < shape_.layers; ++i) {
    const std::string layer = fmt::format("layers.{}", i);
    blocks_.push_back(std::make_unique<AttentionBlock>(context, layer));
    if (shape_.is_moe()) {
      blocks_.push_back(make_moe_block(context, layer));
    } else {
      blocks_.push_back(std::make_unique<MlpBlock>(context, layer));
    }
  }
  for (std::size_t i = 0; i <= blocks_.size(); ++i) activations_.push_back(rank_.floats(d_.size()));
}

void Model::reset_loss() { rank_.clear(rank_.task("loss", "reset"), losses_); }

void Model::begin_step(std::int64_t first_sample) {
  rank_.arithmetic().store(rank_.task("data", "step"), step_begin_, first_sample);
}

void Model::load(DataSplit split, std::int64_t offset) {
  rank_.arithmetic().load(rank_.task("data", "load"), tokens_, targets_, step_begin_,
                          {seed_, split, offset, batch_.seq, shape_.vocab});
}

void Model::embed() {
  const auto views = rank_.gtp().materialize(*embedding_.weight, Use::kForward, rank_.compute());
  const Weights table = usable_weight(rank_, embedding_, views[0], CopyDirection::kRow);
  const Floats x = activations_.front();
  rank_.arithmetic().embedding_forward(rank_.task("embedding", "forward"), x, tokens_, table, embedding_.row_begin);
  rank_.all_reduce(rank_.groups().tp, x, {"embedding", "forward"}, rank_.calls().tensor_parallel);
  rank_.arithmetic().position_forward(rank_.task("position", "forward"), x, position_.values);
}

void Model::forward(DataSplit split, std::int64_t offset) {
  load(split, offset);
  embed();
  for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i]->forward(activations_[i + 1], activations_[i]);
  final_norm_.forward(activations_.back());
  head_.forward(logits_, final_norm_.output());
  const Group& tp = rank_.groups().tp;
  if (tp.size() == 1) return;
  rank_.all_gather(tp, std::as_writable_bytes(gathered_logits_), std::as_bytes(logits_), {"head", "forward"},
                   rank_.calls().tensor_parallel);
}

void Model::loss(Floats dlogits, float scale) {
  const Group& tp = rank_.groups().tp;
  const LossShape shape{static_cast<std::size_t>(tp.size()), static_cast<std::size_t>(tp.position())};
  rank_.arithmetic().cross_entropy(rank_.task("loss", "cross entropy"), losses_, dlogits, gathered_logits_, targets_,
                                   shape, scale);
}

void Model::evaluate() { loss({}, 0.0F); }

void Model::backward(float scale) {
  loss(dlogits_, scale);
  head_.backward(d_normed_, dlogits_, final_norm_.output());
  rank_.all_reduce(rank_.groups().tp, d_normed_, {"head", "backward"}, rank_.calls().tensor_parallel);
  rank_.clear(rank_.task("residual", "start"), d_);
  final_norm_.backward(d_, d_normed_, activations_.back());
  for (std::size_t i = blocks_.size(); i-- > 0;) blocks_[i]->backward(d_, activations_[i]);
  embed_backward();
}

void Model::embed_backward() {
  rank_.arithmetic().position_backward(rank_.task("position", "backward"), position_.grad, d_);
  Runtime& gtp = rank_.gtp();
  const GradTarget dtable = target_of(gtp.grad_buffer(*embedding_.weight, rank_.compute())[0]);
  rank_.arithmetic().embedding_wgrad(rank_.task("embedding", "wgrad"), dtable, d_, tokens_, embedding_.row_begin,
                                     embedding_.rows);
  gtp.reduce_grad(*embedding_.weight, rank_.compute());
}

}  // namespace gtp::train
