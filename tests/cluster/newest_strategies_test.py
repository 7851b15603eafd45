"""Strategies with the newest TensorFlow there was at `make deps`: its workers in one group with programs of Shoal's
(TensorFlow 2's way, coordination_test.py), and a loop in graph mode one of whose servers is Shoal's (programs_test.py).

What newer versions have no more (Estimator), or what fails among their own workers (Keras 3's fit), is left to 2.15.1's
tests.
"""
# not on the soft device: groups of TensorFlow 2, whose members are CPUs
import sys

import newest

sys.exit(newest.run("strategies with the newest TensorFlow",
                    ["coordination_test.py", "leads TensorFlow's worker"], ["coordination_test.py", "leads a program of Shoal's"],
                    ["coordination_test.py", "a strategy in C trains"], ["programs_test.py", "mirrored.py on shoal ps"]))
