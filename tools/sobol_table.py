#!/usr/bin/env python3
"""Writes src/ops/random/sobol_numbers.inc: the direction numbers of Sobol's sequence that TensorFlow uses (those of
Joe and Kuo), asked of TensorFlow itself.

  tools/python.sh tools/sobol_table.py > src/ops/random/sobol_numbers.inc

Point 2^k of the sequence is v[k] ^ v[k - 1], so 31 samples give all direction numbers of all dimensions. Of each, the
first few and a primitive polynomial make the rest, which is checked here; polynomials come in the order of their bits.
"""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf

DIMS, DIGITS, COLUMNS, BITS = 1111, 31, 112, 6


def directions():
    """[dimension][digit]: odd numbers m, the fraction's digits."""
    table, before = np.zeros((DIMS, DIGITS), np.int64), np.zeros(DIMS, np.int64)
    for k in range(DIGITS):
        x = tf.raw_ops.SobolSample(dim=DIMS, num_results=1, skip=2**k - 1, dtype=tf.float64).numpy()[0]
        table[:, k] = before = np.round(np.abs(x) * 2.0**(k + 1)).astype(np.int64) ^ before << 1
    return table.tolist()


def is_primitive(p):
    """Whether x's powers modulo p are all that there can be."""
    degree = p.bit_length() - 1
    x, n = 1, 0
    while True:
        x <<= 1
        x ^= p if x >> degree & 1 else 0
        n += 1
        if x == 1:
            return n == (1 << degree) - 1
        if x == 0 or n >= 1 << degree:
            return False


def follows(m, p):
    s = p.bit_length() - 1
    for k in range(s, DIGITS):
        v = m[k - s]
        for i in range(1, s + 1):
            v ^= m[k - i] << i if p >> (s - i) & 1 else 0
        if v != m[k]:
            return False
    return True


bits, polynomials = [], (p for p in range(3, 1 << 16, 2) if is_primitive(p))
for m in directions()[1:]:
    p = next(polynomials)
    assert follows(m, p), f"{m} do not follow {p:b}"
    s = p.bit_length() - 1
    for value, width in [(p, 14)] + [(m[k] >> 1, k) for k in range(1, s)]:
        bits += [value >> i & 1 for i in reversed(range(width))]
bits += [0] * (-len(bits) % BITS)
digits = ("".join(map(str, bits[i:i + BITS])) for i in range(0, len(bits), BITS))
text = "".join(chr(48 + int(d, 2)) for d in digits).replace("\\", "\\\\")
print("/* Made by tools/sobol_table.py. */")
print(f"enum {{ SOBOL_DIMS = {DIMS} }};")
print("static const char sobol_bits[] =")
at = 0
while at < len(text):
    end = at + COLUMNS
    if (len(text[at:end]) - len(text[at:end].rstrip("\\"))) % 2:
        end += 1
    print(f'    "{text[at:end]}"' + (";" if end >= len(text) else ""))
    at = end
