// Experts on host memory.
#include "host_arithmetic.hpp"

namespace gtp::train {

void HostArithmetic::route_forward(const Task& task, Floats gates, Floats probs, ConstFloats logits, RouteShape shape) {
  run(task, {writes(gates), writes(probs), reads(logits)}, [=] { train::route_forward(gates, probs, logits, shape); });
}

void HostArithmetic::route_backward(const Task& task, Floats dlogits, ConstFloats dgates, ConstFloats gates,
                                    ConstFloats probs, RouteShape shape) {
  run(task, {writes(dlogits), reads(dgates), reads(gates), reads(probs)},
      [=] { train::route_backward(dlogits, dgates, gates, probs, shape); });
}

void HostArithmetic::dispatch(const Task& task, Floats slots, Floats sent_gates, ConstFloats x, ConstFloats gates,
                              const SlotShape& shape) {
  run(task, {writes(slots), writes(sent_gates), reads(x), reads(gates)},
      [=] { train::dispatch(slots, sent_gates, x, gates, shape); });
}

void HostArithmetic::swap_axes(const Task& task, Floats out, ConstFloats in, const AxisShape& shape) {
  run(task, {writes(out), reads(in)}, [=] { train::swap_axes(out, in, shape); });
}

void HostArithmetic::repeat(const Task& task, Floats out, ConstFloats in) {
  run(task, {writes(out), reads(in)}, [=] { train::repeat(out, in); });
}

void HostArithmetic::sum_parts(const Task& task, Floats y, ConstFloats parts, ConstFloats x) {
  run(task, {writes(y), reads(parts), reads(x)}, [=] { train::sum_parts(y, parts, x); });
}

void HostArithmetic::add_gated(const Task& task, Floats y, ConstFloats f, ConstFloats gate) {
  run(task, {writes(y), reads(f), reads(gate)}, [=] { train::add_gated(y, f, gate); });
}

void HostArithmetic::gated_backward(const Task& task, Floats df, Floats dgate, ConstFloats dy, ConstFloats f,
                                    ConstFloats gate) {
  run(task, {writes(df), writes(dgate), reads(dy), reads(f), reads(gate)},
      [=] { train::gated_backward(df, dgate, dy, f, gate); });
}

}  // namespace gtp::train
