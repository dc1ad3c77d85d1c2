// Causal attention, a block of threads for each query (and, in backward, for each key) of each head.
#include "examples/train/cuda/kernels.cuh"

namespace gtp::train {

namespace {

enum class Part : std::uint8_t { kQuery, kKey, kValue };

/// One place of one head of one sample.
struct Row {
  const AttentionShape& shape;
  std::size_t sample, head, place;

  __device__ Row(const AttentionShape& attention, std::size_t row)
      : shape(attention),
        sample(row / attention.seq / attention.heads),
        head(row / attention.seq % attention.heads),
        place(row % attention.seq) {}

  __device__ std::size_t projected(std::size_t at, Part part) const {
    return (((sample * shape.seq + at) * shape.heads + head) * 3 + static_cast<std::size_t>(part)) * shape.width;
  }
  __device__ std::size_t output(std::size_t at) const {
    return ((sample * shape.seq + at) * shape.heads + head) * shape.width;
  }
  __device__ std::size_t probability(std::size_t query, std::size_t key) const {
    return ((sample * shape.heads + head) * shape.seq + query) * shape.seq + key;
  }
};

__device__ float dot(const float* a, const float* b, std::size_t width) {
  float sum = 0.0F;
  for (std::size_t i = 0; i < width; ++i) sum += a[i] * b[i];
  return sum;
}

__device__ void forward_row(const Row& row, Floats context, Floats probs, ConstFloats qkv) {
  const AttentionShape& shape = row.shape;
  const float* query = &qkv[row.projected(row.place, Part::kQuery)];
  const Floats p = probs.subspan(row.probability(row.place, 0), shape.seq);
  const float scale = 1.0F / sqrtf(static_cast<float>(shape.width));
  float top = -INFINITY;
  for (std::size_t key = threadIdx.x; key < shape.seq; key += kThreads) {
    p[key] = key <= row.place ? dot(query, &qkv[row.projected(key, Part::kKey)], shape.width) * scale : -INFINITY;
    top = fmaxf(top, p[key]);
  }
  top = reduce_block(top, Larger{});
  float sum = 0.0F;
  for (std::size_t key = threadIdx.x; key < shape.seq; key += kThreads) sum += p[key] = expf(p[key] - top);
  sum = reduce_block(sum, Plus{});
  for (std::size_t key = threadIdx.x; key < shape.seq; key += kThreads) p[key] /= sum;
  __syncthreads();
  for (std::size_t i = threadIdx.x; i < shape.width; i += kThreads) {
    float value = 0.0F;
    for (std::size_t key = 0; key <= row.place; ++key) value += p[key] * qkv[row.projected(key, Part::kValue) + i];
    context[row.output(row.place) + i] = value;
  }
}

/// The gradients of a query, and of all its scores.
__device__ void backward_query(const Row& row, Floats dqkv, Floats dscores, ConstFloats dcontext, ConstFloats probs,
                               ConstFloats qkv) {
  const AttentionShape& shape = row.shape;
  const float* d = &dcontext[row.output(row.place)];
  const ConstFloats p = probs.subspan(row.probability(row.place, 0), shape.seq);
  const Floats ds = dscores.subspan(row.probability(row.place, 0), shape.seq);
  const float scale = 1.0F / sqrtf(static_cast<float>(shape.width));
  float weighted = 0.0F;
  for (std::size_t key = threadIdx.x; key <= row.place; key += kThreads) {
    ds[key] = dot(d, &qkv[row.projected(key, Part::kValue)], shape.width);
    weighted += p[key] * ds[key];
  }
  weighted = reduce_block(weighted, Plus{});
  for (std::size_t key = threadIdx.x; key <= row.place; key += kThreads)
    ds[key] = p[key] * (ds[key] - weighted) * scale;
  __syncthreads();
  for (std::size_t i = threadIdx.x; i < shape.width; i += kThreads) {
    float value = 0.0F;
    for (std::size_t key = 0; key <= row.place; ++key) value += ds[key] * qkv[row.projected(key, Part::kKey) + i];
    dqkv[row.projected(row.place, Part::kQuery) + i] = value;
  }
}

/// The gradients of a key and its value, from all queries that saw it.
__device__ void backward_key(const Row& row, Floats dqkv, ConstFloats dscores, ConstFloats dcontext, ConstFloats probs,
                             ConstFloats qkv) {
  const AttentionShape& shape = row.shape;
  for (std::size_t i = threadIdx.x; i < shape.width; i += kThreads) {
    float dkey = 0.0F, dvalue = 0.0F;
    for (std::size_t query = row.place; query < shape.seq; ++query) {
      const std::size_t at = row.probability(query, row.place);
      dkey += dscores[at] * qkv[row.projected(query, Part::kQuery) + i];
      dvalue += probs[at] * dcontext[row.output(query) + i];
    }
    dqkv[row.projected(row.place, Part::kKey) + i] = dkey;
    dqkv[row.projected(row.place, Part::kValue) + i] = dvalue;
  }
}

}  // namespace

void CudaArithmetic::attention_forward(const Task& task, Floats context, Floats probs, ConstFloats qkv,
                                       const AttentionShape& shape) {
  for_each_row(task, shape.samples * shape.heads * shape.seq,
               [=] __device__(std::size_t row) { forward_row(Row(shape, row), context, probs, qkv); });
}

void CudaArithmetic::attention_backward(const Task& task, Floats dqkv, ConstFloats dcontext, ConstFloats probs,
                                        ConstFloats qkv, const AttentionShape& shape) {
  const auto dscores = scores_.get<float>(shape.probabilities());
  const std::size_t rows = shape.samples * shape.heads * shape.seq;
  for_each_row(task, rows, [=] __device__(std::size_t row) {
    backward_query(Row(shape, row), dqkv, dscores, dcontext, probs, qkv);
  });
  for_each_row(task, rows,
               [=] __device__(std::size_t row) { backward_key(Row(shape, row), dqkv, dscores, dcontext, probs, qkv); });
}

}  // namespace gtp::train
