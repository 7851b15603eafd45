"""The matrix of servers once more, with the newest TensorFlow there was at `make deps`.

Newer than 2.15.1 there is no other way to a TF1-style cluster than compat.v1, and its protocol has grown; the programs
are the same.
"""
# not on the soft device: the programs of matrix_test.py, with another client
import sys

import newest

sys.exit(newest.run("the matrix with the newest TensorFlow", ["matrix_test.py", *sys.argv[1:]]))
