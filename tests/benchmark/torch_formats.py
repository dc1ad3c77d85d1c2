"""What PyTorch needs, eager and compiled, for the results of the format and reduction kernels: one table.

Every operation is written the straightforward way. `exact` compares a small case with plain Python arithmetic and the
compiled result with the eager one. GB/s counts the bytes the task must move, not those PyTorch does move.
"""

import argparse
import math
import random
import statistics
import struct

import torch

COLS = 8192
RECIPROCAL_448 = struct.unpack("<f", struct.pack("<I", 0x3B124925))[0]


def mxfp8_quantize(x):
    blocks = x.view(x.shape[0], -1, 32).float()
    bits = (blocks.abs().amax(-1) * RECIPROCAL_448).view(torch.int32)
    exponent, mantissa = bits >> 23, bits & 0x7FFFFF
    stays = (mantissa == 0) | (exponent == 0xFE) | ((exponent == 0) & (mantissa <= 0x400000))
    scale = exponent + (~stays).int()
    inverse = ((254 - scale) << 23).view(torch.float32)
    codes = (blocks * inverse.unsqueeze(-1)).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
    return codes.view(x.shape).view(torch.uint8), scale.to(torch.uint8)


def mxfp8_dequantize(codes, scales):
    values = codes.view(torch.float8_e4m3fn).view(codes.shape[0], -1, 32).float()
    factor = (scales.int() << 23).view(torch.float32)
    return (values * factor.unsqueeze(-1)).to(torch.bfloat16).view(codes.shape)


def nvfp4_quantize(x, amax):
    rows, cols = x.shape
    tiles = x.view(rows // 16, 16, cols // 16, 16).float()
    global_scale = 2688.0 / amax
    block = (tiles.abs().amax((1, 3)) * (global_scale * (1.0 / 6.0))).clamp(max=448.0).to(torch.float8_e4m3fn)
    factor = (1.0 / (block.float() * (1.0 / global_scale))).clamp(max=torch.finfo(torch.float32).max)
    scaled = (tiles * factor.view(rows // 16, 1, cols // 16, 1)).view(rows, cols)
    size = scaled.abs()
    code = (size > 0.25).to(torch.uint8) + (size >= 0.75) + (size > 1.25) + (size >= 1.75)
    code = code + (size > 2.5) + (size >= 3.5) + (size > 5.0) + (scaled.signbit().to(torch.uint8) << 3)
    codes = code[:, 0::2] | (code[:, 1::2] << 4)
    return codes, block.view(torch.uint8).repeat_interleave(16, 0)


def sum_chunks(main_grad, chunks):
    total = chunks[0].float()
    for chunk in chunks[1:]:
        total = total + chunk.float()
    main_grad.add_(total * 0.125)
    return main_grad


def e4m3_value(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    size = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -size if code & 128 else size


def nearest_even(value, codes):
    """The code of the nearest value, an even code on a tie."""
    return min(codes, key=lambda pair: (abs(pair[1] - abs(value)), pair[0] % 2))[0] | (128 if math.copysign(1, value) < 0 else 0)


def fp32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def check_mxfp8():
    """One block at a time in Python floats: exact, as every product here is one of a BF16 and a power of two."""
    random.seed(1)
    x = torch.tensor([[random.gauss(0, 1) * 2.0 ** random.randint(-9, 9) for _ in range(64)] for _ in range(32)])
    x = x.to(torch.bfloat16).cuda()
    x[0, :3] = torch.tensor([1.75, 1.0, 0.0])
    x[0, 3:32] = 0
    codes, scales = mxfp8_quantize(x)
    if codes[0, :2].tolist() != [0x7E, 0x78] or int(scales[0, 0]) != 0x77:
        return False
    table = [(code, e4m3_value(code)) for code in range(127)]
    for row in range(32):
        for block in range(2):
            values = x[row, block * 32 : block * 32 + 32].float().tolist()
            mantissa, exponent = math.frexp(fp32(max(map(abs, values)) * RECIPROCAL_448))
            scale = exponent - (1 if mantissa == 0.5 else 0)
            expected = [nearest_even(value * 2.0**-scale, table) for value in values]
            if int(scales[row, block]) != scale + 127 or codes[row, block * 32 : block * 32 + 32].tolist() != expected:
                return False
    decoded = mxfp8_dequantize(codes, scales)
    for row in range(32):
        for col in range(64):
            expected = e4m3_value(int(codes[row, col])) * 2.0 ** (int(scales[row, col // 32]) - 127)
            if float(decoded[row, col]) != expected:
                return False
    return True


def check_nvfp4():
    x = torch.zeros(16, 16, dtype=torch.bfloat16, device="cuda")
    values = [6.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.5, -3.0, 0.2, 5.1, -0.0, 1.0, 2.0, 4.0]
    x[3] = torch.tensor(values)
    codes, scales = nvfp4_quantize(x, torch.tensor(2688.0, device="cuda"))
    expected = [7, 0, 2, 2, 4, 4, 6, 6, 9, 13, 0, 7, 8, 2, 4, 6]
    packed = [low | high << 4 for low, high in zip(expected[0::2], expected[1::2])]
    return codes[3].tolist() == packed and int(scales[3, 0]) == 0x38


def check_sum():
    generator = torch.Generator().manual_seed(3)
    chunks = torch.randn(8, 64, generator=generator).to(torch.bfloat16)
    before = torch.randn(64, generator=generator)
    after = sum_chunks(before.cuda().clone(), chunks.cuda()).cpu()
    for i in range(64):
        total = float(chunks[0, i])
        for c in range(1, 8):
            total = fp32(total + float(chunks[c, i]))
        if float(after[i]) != fp32(float(before[i]) + fp32(0.125 * total)):
            return False
    return True


def microseconds(function, sets):
    for arguments in sets:
        function(*arguments)
    times = []
    for repeat in range(24):
        arguments = sets[repeat % len(sets)]
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        function(*arguments)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times[4:])


def cases(mib):
    """Name, function, argument sets, bytes to move, whether the small check passed."""
    size = mib << 20

    def source():
        return torch.randn(size // 2 // COLS, COLS, device="cuda").to(torch.bfloat16)

    elements = size // 2
    matrices = [source() for _ in range(3)]
    mxfp8_ok = check_mxfp8()
    yield "mxfp8 quantize rows", mxfp8_quantize, [(m,) for m in matrices], elements * (3 + 1 / 32), mxfp8_ok
    quantized = [mxfp8_quantize(m) for m in matrices]
    yield "mxfp8 dequantize rows", mxfp8_dequantize, quantized, elements * (3 + 1 / 32), mxfp8_ok
    with_amax = [(m, m.abs().amax().float()) for m in matrices]
    yield "nvfp4 quantize", nvfp4_quantize, with_amax, elements * (2 + 9 / 16), check_nvfp4()
    count = elements // 8
    sums = [(torch.randn(count, device="cuda"), m.view(8, count)) for m in matrices]
    yield "sum 8 bf16 into fp32", sum_chunks, sums, elements * 2 + count * 8, check_sum()
    yield "copy", lambda a, b: a.copy_(b), [(matrices[0], matrices[1]), (matrices[1], matrices[2])], 2 * size, True


def same(left, right):
    left, right = (value if isinstance(value, tuple) else (value,) for value in (left, right))
    return all(torch.equal(a, b) for a, b in zip(left, right))


def fresh(arguments):
    return tuple(argument.clone() for argument in arguments)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, nargs="*", default=[64, 512])
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}")
    print(f"{'operation':24} {'MiB':>5} {'eager us':>10} {'GB/s':>6} {'compile us':>11} {'GB/s':>6} {'exact':>6} {'same':>5}")
    for mib in options.mib:
        for name, function, sets, moved, exact in cases(mib):
            eager = microseconds(function, sets)
            compiled, agrees = float("nan"), "-"
            if not options.no_compile and name != "copy":
                torch._dynamo.reset()
                fast = torch.compile(function, dynamic=False)
                agrees = same(function(*fresh(sets[0])), fast(*fresh(sets[0])))
                compiled = microseconds(fast, sets)
            print(
                f"{name:24} {mib:5} {eager:10.1f} {moved / eager / 1000:6.0f} {compiled:11.1f}"
                f" {moved / compiled / 1000:6.0f} {exact!s:>6} {agrees!s:>5}",
                flush=True,
            )


if __name__ == "__main__":
    main()
