"""A PyTorch model whose weights are sharded by GTP, trained beside the same model unsharded: the losses must agree.

    torchrun --nproc-per-node 2 examples/torch/linear.py build/kernels/libgtp_runtime.so

Every rank reads other samples. Needs a build with -Dcuda=enabled; PyTorch and the library must load the same NCCL.
"""

import os
import sys

import torch

import gtp

HIDDEN, TOKENS, LAYERS, STEPS, RATE = 256, 128, 3, 20, 0.05


class Linear(torch.autograd.Function):
    """y = x w^T with a weight that is gathered for each use and never kept."""

    @staticmethod
    def forward(context, x, weight):
        context.save_for_backward(x)
        context.weight = weight
        return x @ weight.materialize(gtp.FORWARD).t()

    @staticmethod
    def backward(context, dy):
        (x,), weight = context.saved_tensors, context.weight
        dx = dy @ weight.materialize(gtp.DGRAD)
        target, accumulate = weight.grad_buffer()
        wgrad = dy.float().t() @ x.float()
        target.add_(wgrad) if accumulate else target.copy_(wgrad)
        weight.reduce_grad()
        return dx, None


def samples(rank, step):
    generator = torch.Generator("cuda").manual_seed(1000 * step + rank)
    x = torch.randn(TOKENS, HIDDEN, generator=generator, device="cuda", dtype=torch.bfloat16)
    return x, torch.roll(x, 1, dims=1)


def loss_of(layer, x, target):
    for i in range(LAYERS):
        x = torch.tanh(layer(i, x))
    return (x.float() - target.float()).square().mean()


def initial(i):
    generator = torch.Generator("cuda").manual_seed(i)
    return torch.randn(HIDDEN, HIDDEN, generator=generator, device="cuda") / HIDDEN**0.5


def train_sharded(library, rank):
    masters, weights, losses = [], [], []
    for i in range(LAYERS):
        weights.append(library.weight(f"layers.{i}", initial(i).bfloat16()))
        masters.append(initial(i)[weights[i].rows].clone())
    for step in range(STEPS):
        for weight in weights:
            weight.main_grad.zero_()
        x, target = samples(rank, step)
        loss = loss_of(lambda i, value: Linear.apply(value, weights[i]), x.requires_grad_(), target)
        loss.backward()
        library.fence_grads()
        for master, weight in zip(masters, weights):
            master -= RATE * weight.main_grad[:len(master)]
            weight.shard[:len(master)] = master
            weight.publish()
        losses.append(loss.item())
    return losses, masters, [weight.rows for weight in weights]


def train_whole(world, rank):
    masters, losses = [initial(i) for i in range(LAYERS)], []
    for step in range(STEPS):
        weights = [master.bfloat16().requires_grad_() for master in masters]
        means = [torch.zeros_like(master) for master in masters]
        for peer in range(world):
            loss = loss_of(lambda i, value: value @ weights[i].t(), *samples(peer, step))
            for mean, grad in zip(means, torch.autograd.grad(loss, weights)):
                mean += grad.float() / world
            if peer == rank:
                losses.append(loss.item())
        for master, mean in zip(masters, means):
            master -= RATE * mean
    return losses, masters


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    library = gtp.Library(sys.argv[1], weight_shards=world)
    sharded, shards, rows = train_sharded(library, rank)
    library.close()
    whole, masters = train_whole(world, rank)
    worst = max(abs(a - b) / b for a, b in zip(sharded, whole))
    distance = max((shard - master[part]).abs().max().item() for shard, master, part in zip(shards, masters, rows))
    print(f"rank {rank}: loss {sharded[0]:.5f} to {sharded[-1]:.5f}, unsharded to {whole[-1]:.5f}; "
          f"largest relative difference {worst:.1e}, of a weight {distance:.1e}")
    if not (worst < 5e-3 and distance < 5e-3 and sharded[-1] < sharded[0]):
        sys.exit(f"rank {rank}: the two runs do not agree")


if __name__ == "__main__":
    main()
