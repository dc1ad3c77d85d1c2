// Host time of the runtime alone: the no-op backend enqueues nothing. Bar: a consume takes at most 1 us.
#include <benchmark/benchmark.h>

#include "../kernels/runtime/noop_model.hpp"

namespace {

using gtp::test::NoopModel;

void per_call(benchmark::State& state, std::int64_t calls) {
  state.counters["per_call"] = benchmark::Counter(static_cast<double>(calls * state.iterations()),
                                                  benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void consume(benchmark::State& state) {
  NoopModel model(static_cast<std::size_t>(state.range(0)));
  for (int step = 0; step < 2; ++step) model.step();
  for (auto _ : state) model.forward();
  per_call(state, state.range(0));
}
BENCHMARK(consume)->Arg(8)->Arg(512);

void training_step(benchmark::State& state) {
  NoopModel model(static_cast<std::size_t>(state.range(0)));
  for (int step = 0; step < 2; ++step) model.step();
  for (auto _ : state) model.step();
  per_call(state, state.range(0));
}
BENCHMARK(training_step)->Arg(8)->Arg(512);

}  // namespace

BENCHMARK_MAIN();
