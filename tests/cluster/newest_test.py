"""The matrix of servers once more, with the newest TensorFlow there was at `make deps`.

Newer than 2.15.1 there is no other way to a TF1-style cluster than compat.v1, and its protocol has grown; the programs
are the same.
"""
# not on the soft device: the programs of matrix_test.py, with another client
import os
import subprocess
import sys

python = os.path.join(os.environ.get("SHOAL_TF_NEWEST_ENV", ""), "bin", "python")
if not os.path.exists(python):
    print("ok - the matrix with the newest TensorFlow # SKIP there is none (make deps)")
    sys.exit(0)
here = os.path.dirname(os.path.abspath(__file__))
sys.exit(subprocess.call([python, os.path.join(here, "matrix_test.py"), *sys.argv[1:]]))
