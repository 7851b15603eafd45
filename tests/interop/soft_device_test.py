"""The op harness on the soft device (src/device/soft): cases whose ops it has run there, behind memory that the host
cannot read; variables, updates, convolutions, what is written in place. Real TensorFlow, on its CPU, is the judge."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
FILES = ("lists", "nn_conv", "nn_norm", "rows_in_place", "variables")

os.environ["SHOAL_SOFT_GPUS"] = "1"
os.execv(sys.executable, [sys.executable, os.path.join(HERE, "harness.py"), "--mode=compare",
                          *(os.path.join(HERE, "ops", f + ".py") for f in FILES)])
