"""Writes src/ops/text/unicode_scripts.inc: the script of every code point, as TensorFlow's UnicodeScript gives it.

  tools/python.sh tools/unicode_scripts.py > src/ops/text/unicode_scripts.inc

Each word is the first code point of a run in its upper 24 bits and ICU's number of the script in its lower 8.
"""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from words import print_words

scripts = tf.raw_ops.UnicodeScript(input=np.arange(0x110000, dtype=np.int32)).numpy()
starts = [0] + [int(i) + 1 for i in np.nonzero(np.diff(scripts))[0]]
words = [f"0x{start << 8 | int(scripts[start]):x}" for start in starts]
print("/* Made by tools/unicode_scripts.py. */")
print_words(words)
