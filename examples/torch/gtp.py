"""The runtime from Python, through its C interface: what a linear layer of a PyTorch model needs, and no more.

`Library(path)` loads libgtp_runtime.so. Shards, gradients and streams are PyTorch's; gathered weights and send buffers
are the runtime's, seen as tensors without a copy. A gathered weight may be read by work enqueued on the same stream
before the next `materialize` there.
"""

import ctypes as c

import torch

FORWARD, DGRAD = 0, 1
_COMPONENTS = 5


class _Sized(c.Structure):
    def __init__(self, **values):
        super().__init__(size=c.sizeof(type(self)), **values)


class _RuntimeOptions(_Sized):
    _fields_ = (
        [("size", c.c_size_t)]
        + [(name, c.c_int64) for name in (
            "tensor_model_parallel_size", "tensor_parallel_num_weight_shards", "context_parallel_size",
            "pipeline_model_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size",
            "expert_tensor_parallel_num_weight_shards")]
        + [("use_tp_pp_dp_mapping", c.c_int32), ("gather_on_demand", c.c_int32), ("prefetch_depth", c.c_uint32),
           ("graph_wgrad_ring_size", c.c_uint32)]
        + [(name, c.c_int32) for name in (
            "synchronous_reduction", "calculate_per_token_loss", "gtp_remat_reduce_scatter_with_fp32_accumulation",
            "gtp_remat_nccl_ub", "gtp_expert_remat_nccl_ub", "register_gather_outputs", "poison_free_buffers")]
        + [("teardown_limit_ms", c.c_int64), ("allocate", c.c_void_p), ("deallocate", c.c_void_p),
           ("memory_user", c.c_void_p)])


class _Shard(_Sized):
    _fields_ = [("size", c.c_size_t), ("data", c.c_void_p * _COMPONENTS), ("main_grad", c.c_void_p)]


class _WeightOptions(_Sized):
    _fields_ = [
        ("size", c.c_size_t), ("name", c.c_char_p), ("rows", c.c_int64), ("cols", c.c_int64), ("format", c.c_int32),
        ("domain", c.c_int32), ("pad_for_alignment", c.c_int64), ("shards", c.POINTER(_Shard)),
        ("shard_count", c.c_size_t), ("model_chunk", c.c_uint32), ("graphed", c.c_int32), ("role", c.c_int32),
        ("main_grad_type", c.c_int32), ("wire_type", c.c_int32), ("no_dgrad", c.c_int32), ("zero_out_wgrad", c.c_int32),
        ("bucket", c.c_uint32), ("grad_ready", c.c_void_p), ("grad_ready_user", c.c_void_p)]


class _Layout(_Sized):
    _fields_ = [("size", c.c_size_t)] + [(name, c.c_int64) for name in (
        "group_size", "position", "shard_rows", "padded_rows", "row_begin", "shard_elements")] + [
            ("shard_bytes", c.c_int64 * _COMPONENTS), ("gathered_bytes", c.c_int64 * _COMPONENTS)]


class _GatheredView(_Sized):
    _fields_ = [("size", c.c_size_t), ("data", c.c_void_p * _COMPONENTS), ("rows", c.c_int64),
                ("padded_rows", c.c_int64), ("cols", c.c_int64), ("swizzled", c.c_int32), ("version", c.c_uint64),
                ("generation", c.c_uint64)]


class _WgradView(_Sized):
    _fields_ = [("size", c.c_size_t), ("data", c.c_void_p), ("type", c.c_int32), ("accumulate", c.c_int32),
                ("rows", c.c_int64), ("cols", c.c_int64)]


class _Memory:
    """Device memory as the protocol that torch.as_tensor reads. It has no bf16: such bits travel as int16."""

    def __init__(self, address, shape, kind):
        self.__cuda_array_interface__ = {"data": (address, False), "shape": shape, "typestr": kind, "version": 2}


def _tensor(address, rows, cols, bf16):
    seen = torch.as_tensor(_Memory(address, (rows, cols), "<i2" if bf16 else "<f4"), device="cuda")
    return seen.view(torch.bfloat16) if bf16 else seen


class Library:
    """One rank of a job that torchrun's variables describe, on PyTorch's current device."""

    def __init__(self, path, weight_shards):
        self._c = c.CDLL(path)
        self._c.gtp_last_error.restype = c.c_char_p
        self._world, self._backend, self._runtime = c.c_void_p(), c.c_void_p(), c.c_void_p()
        self._streams = {}

        class CudaOptions(_Sized):
            _fields_ = [("size", c.c_size_t), ("choose_device", c.c_int32), ("device", c.c_int32),
                        ("start_limit_ms", c.c_int64), ("operation_limit_ms", c.c_int64), ("annotate", c.c_int32)]

        options = CudaOptions(choose_device=1, device=torch.cuda.current_device())
        self.call("gtp_cuda_world_from_environment", c.byref(options), c.byref(self._world))
        self.call("gtp_cuda_backend", self._world, c.byref(self._backend))
        options = _RuntimeOptions(tensor_parallel_num_weight_shards=weight_shards)
        self.call("gtp_runtime_create", self._backend, c.byref(options), c.byref(self._runtime))

    def call(self, name, *arguments):
        """Raises with the library's text unless the call succeeds."""
        if getattr(self._c, name)(*arguments) != 0:
            raise RuntimeError(f"{name}: {self._c.gtp_last_error().decode()}")

    def stream(self):
        """PyTorch's current stream as the runtime knows it."""
        native = torch.cuda.current_stream().cuda_stream
        if native not in self._streams:
            made = c.c_void_p()
            self.call("gtp_cuda_stream", self._backend, c.c_void_p(native), c.byref(made))
            self._streams[native] = made
        return self._streams[native]

    def fence_grads(self):
        self.call("gtp_fence_grads", self._runtime, self.stream())

    def close(self):
        """Weights are dead afterwards."""
        torch.cuda.synchronize()
        self.call("gtp_runtime_destroy", self._runtime)
        self.call("gtp_cuda_world_destroy", self._world)

    def weight(self, name, whole):
        return Weight(self, name, whole)


class Weight:
    """A weight [out, in] in bf16, of which this rank keeps a shard, and the shard's fp32 main_grad."""

    def __init__(self, library, name, whole):
        self._library, self._handle = library, c.c_void_p()
        options = _WeightOptions(name=name.encode(), rows=whole.shape[0], cols=whole.shape[1])
        layout = _Layout()
        library.call("gtp_layout_of", library._runtime, c.byref(options), c.byref(layout))
        begin, rows = layout.row_begin, layout.shard_rows
        self.shard = torch.zeros(rows, whole.shape[1], dtype=torch.bfloat16, device="cuda")
        own = whole[begin:begin + rows]
        self.shard[:own.shape[0]] = own
        self.rows = slice(begin, begin + own.shape[0])
        self.main_grad = torch.zeros(rows, whole.shape[1], device="cuda")
        shard = _Shard(main_grad=self.main_grad.data_ptr())
        shard.data[0] = self.shard.data_ptr()
        options.shards, options.shard_count = c.pointer(shard), 1
        library.call("gtp_add_weight", library._runtime, c.byref(options), c.byref(self._handle))

    def materialize(self, use):
        view = _GatheredView()
        self._library.call("gtp_materialize", self._handle, use, self._library.stream(), c.byref(view), c.c_size_t(1))
        return _tensor(view.data[0], view.rows, view.cols, True)

    def grad_buffer(self):
        """Where the gradient goes, and whether it must be added to what is there."""
        view = _WgradView()
        self._library.call("gtp_grad_buffer", self._handle, self._library.stream(), c.byref(view), c.c_size_t(1))
        return _tensor(view.data, view.rows, view.cols, view.type == 2), bool(view.accumulate)

    def reduce_grad(self):
        self._library.call("gtp_reduce_grad", self._handle, self._library.stream())

    def publish(self):
        """The shard was rewritten by work on the current stream."""
        handles = (c.c_void_p * 1)(self._handle)
        self._library.call("gtp_publish", handles, c.c_size_t(1), self._library.stream())
