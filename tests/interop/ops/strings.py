"""Ops on strings."""
from cases import *

S = lambda *words: np.array([w if isinstance(w, bytes) else w.encode() for w in words], object)
ONE = lambda w: np.array(w if isinstance(w, bytes) else w.encode(), object)

# ---- joining ----
op("StringJoin", {"inputs": [S("a", "bc"), ONE("x"), S("", "d" * 40)]}, {"separator": "-"})
op("StringJoin", {"inputs": [ONE("a"), ONE("b")]})
op("StringJoin", {"inputs": [S()]})
op("StringJoin", {"inputs": [S("a", "b"), S("c")]}, error="INVALID_ARGUMENT", message="Input shapes do not match")
for axes in ([0], [1], [-1], [0, 1], [1, 0], [2, 0], [], [0, 1, 2]):
    for keep in (False, True):
        op("ReduceJoin", {"inputs": R(2, 3, 2, dtype=tf.string), "reduction_indices": const(np.array(axes, np.int32))},
           {"keep_dims": keep, "separator": "+"})
op("ReduceJoin", {"inputs": R(2, 0, dtype=tf.string), "reduction_indices": const(np.int32(1))}, {"separator": "+"})
op("ReduceJoin", {"inputs": R(2, 3, dtype=tf.string), "reduction_indices": np.int32(2)}, error="OUT_OF_RANGE")
op("ReduceJoin", {"inputs": R(2, 3, dtype=tf.string), "reduction_indices": [0, 0]}, error="INVALID_ARGUMENT")
op("UnsortedSegmentJoin", {"inputs": R(5, dtype=tf.string), "segment_ids": [0, 2, 0, 2, 3], "num_segments": np.int32(5)},
   {"separator": ":"})
op("UnsortedSegmentJoin", {"inputs": R(4, 2, dtype=tf.string), "segment_ids": [1, 0, 1, 1],
                           "num_segments": np.int64(2)})
op("UnsortedSegmentJoin", {"inputs": R(2, 2, dtype=tf.string), "segment_ids": [[1, 0], [1, 1]],
                           "num_segments": np.int64(2)})
for ids in ([-1, 0], [0, 2]):
    op("UnsortedSegmentJoin", {"inputs": R(2, dtype=tf.string), "segment_ids": ids, "num_segments": np.int32(2)},
       error="INVALID_ARGUMENT", message="not allowed to exceed num_segments")
op("UnsortedSegmentJoin", {"inputs": R(2, 2, dtype=tf.string), "segment_ids": [1, 0, 1], "num_segments": np.int64(2)},
   error="INVALID_ARGUMENT")

# ---- splitting ----
WORDS = S("a b  c", "", " x", "one", ",a,,b,", "a;b,c")
for delimiter in (" ", "", ",", ",;", "ab"):
    for skip in (True, False):
        op("StringSplit", {"input": WORDS, "delimiter": ONE(delimiter)}, {"skip_empty": skip}, name=repr(delimiter))
    for most in (-1, 0, 1, 2):
        op("StringSplitV2", {"input": WORDS, "sep": ONE(delimiter)}, {"maxsplit": most}, name=repr(delimiter))
op("StringSplitV2", {"input": S(), "sep": ONE("")})
op("StringSplitV2", {"input": S("a<>b<><>c", "<>"), "sep": ONE("<>")})
op("StringSplitV2", {"input": ONE("a b"), "sep": ONE(" ")}, error="INVALID_ARGUMENT")

# ---- lengths, parts, case ----
TEXTS = S("", "abc", "äöü€😀x", b"\xff\xfe", "x" * 100, " \t pad \n\x0b", "ÀÉß", "MiXeD 123")
for unit in ("BYTE", "UTF8_CHAR"):
    op("StringLength", {"input": TEXTS}, {"unit": unit})
    for pos, n in ((0, 2), (0, 100), (-1, 1), (0, 0), (-2, 2), (1, -1)):
        op("Substr", {"input": S("hello", "wörld", "€uro"), "pos": np.int32(pos), "len": np.int32(n)}, {"unit": unit})
    op("Substr", {"input": S("hello", "wörld", "€uro"), "pos": np.array([0, 1, 2], np.int64),
                  "len": np.array([3, 2, 1], np.int64)}, {"unit": unit})
    op("Substr", {"input": S("ab"), "pos": np.int32(9), "len": np.int32(1)}, {"unit": unit}, error="INVALID_ARGUMENT",
       message="pos 9 out of range for string")
op("Substr", {"input": R(2, 1, dtype=tf.string), "pos": np.int32(0), "len": np.int32(1)}, name="scalar")
op("Substr", {"input": np.array([[b"abcdef"], [b"ghijkl"]], object), "pos": np.array([1, 2, 3], np.int32),
              "len": np.array([1, 2, 3], np.int32)}, name="broadcast")
op("StringStrip", {"input": TEXTS})
for name in ("StringLower", "StringUpper"):
    op(name, {"input": TEXTS})
    op(name, {"input": S("ÀÉx", "Ñandú", "ПРИВЕТ", "ǅ", "Σς")}, {"encoding": "utf-8"})

# ---- hashes ----
LENGTHS = np.array([bytes((i * j) % 256 for j in range(i)) for i in list(range(0, 70)) + [100, 127, 128, 129, 500, 5000]],
                   object)
for buckets in (1, 10, 2**31, 2**62):
    op("StringToHashBucketFast", {"input": LENGTHS}, {"num_buckets": buckets})
    op("StringToHashBucketStrong", {"input": LENGTHS}, {"num_buckets": buckets, "key": [98765, -132]})
    op("StringToHashBucket", {"string_tensor": LENGTHS}, {"num_buckets": buckets})
op("StringToHashBucketStrong", {"input": LENGTHS}, {"num_buckets": 5, "key": [1]}, error="INVALID_ARGUMENT")
op("Fingerprint", {"data": LENGTHS, "method": ONE("farmhash64")})
op("Fingerprint", {"data": R(3, 4, 5), "method": ONE("farmhash64")}, dtypes=NUMBERS + [tf.bool])
op("Fingerprint", {"data": R(3, 4, dtype=tf.string), "method": ONE("farmhash64")}, name="rows of strings")
op("Fingerprint", {"data": R(3), "method": ONE("md5")}, error="INVALID_ARGUMENT")

# ---- numbers ----
for dtype, words in ((tf.float32, ["1", "-2.5", " 3e4 ", "inf", "-INF", "1e-50", "1e50", "0x1F", "  .5", "+7"]),
                     (tf.float64, ["1.1234567890123456789", "-0", "1e308", "5e-324"]),
                     (tf.int32, ["0", "-2147483648", "2147483647", " 12 "]),
                     (tf.int64, ["9223372036854775807", "-9223372036854775808", "007"])):
    op("StringToNumber", {"string_tensor": S(*words)}, {"out_type": dtype}, name=dtype.name)
for dtype, words in ((tf.float32, ["", "x", "1 2", "1.5.2", "1,5"]), (tf.int32, ["", "2147483648", "1.5", "+1", "--1", "0x10"]),
                     (tf.int64, ["9223372036854775808", "a"])):
    for w in words:
        op("StringToNumber", {"string_tensor": S("1", w)}, {"out_type": dtype}, error="INVALID_ARGUMENT",
           message="StringToNumberOp could not correctly convert string: ", name=repr(w))

# ---- regular expressions ----
SUBJECTS = S("", "a", "abc", "aaa", "foo.bar", "foo/bar_baz", "1-23-456", "äbc", "a\nb", "The quick Brown", "s3://bucket/x",
             "aXbXc", "____", "ab12cd345")
PATTERNS = ["", "a", "a*", "(a*)b?", ".*", "^s3://.*", "[a-c]+", "[^a-c]", "(\\w+)[./](\\w+)", "(\\d+)-(\\d+)", "\\bfoo\\b",
            "(?i)the (QUICK)", "a|b|", "(a|ab)(c|bcd)?", "a{2}", "a{2,}", "a{1,2}?", "[[:digit:]]+", "[[:^alpha:]]", "\\x61",
            "\\x{e4}", "ä", "(?s)a.b", "a.b", "(?m)^b$", "^b$", "\\Qa.b\\E|oo", "(?P<n>o+)", "[\\d_]", "\\W", "\\s", "$", "^",
            "(?:x|X)", "[a\\-z]", "[]a]", "x*?", "(?U)a+", "\\.", "[\\]]", "(((a)))", "(a)|(b)", "\\A.", ".\\z", "[^\\n]+",
            "é|[à-ü]", "a**"[:2], "\\pL+", "\\p{Lu}", "\\PL", "[\\p{Ll}\\p{Nd}]+", "[^\\pL]", "\\p{^L}", "\\p{Latin}", "(?i)\\p{Lu}",
            "(?i)Ä|K", "(?i)[à-ü]+", "(?i)[^ä]", "\\p{P}|\\p{Zs}", "\\p{Any}"]
for p in PATTERNS:
    op("RegexFullMatch", {"input": SUBJECTS, "pattern": ONE(p)}, name=repr(p))
    for all_ in (True, False):
        op("RegexReplace", {"input": SUBJECTS, "pattern": ONE(p), "rewrite": ONE("<\\0>")}, {"replace_global": all_},
           name=repr(p))
    op("StaticRegexFullMatch", {"input": SUBJECTS}, {"pattern": p}, name=repr(p))
op("RegexReplace", {"input": SUBJECTS, "pattern": ONE("(\\w)(\\w)?"), "rewrite": ONE("\\2\\1\\\\")})
op("StaticRegexReplace", {"input": SUBJECTS}, {"pattern": "(\\w)(\\w)?", "rewrite": "\\2\\1\\\\"})
op("RegexReplace", {"input": SUBJECTS, "pattern": ONE("(\\w)"), "rewrite": ONE("\\3")}, name="no such group")
for p in ("(", ")", "[", "*", "a**", "\\", "a{1001}", "(?P<x", "[b-a]", "\\8", "(?z)", "a{2,1}", "\\pX", "\\p", "\\p{L", "\\p{Nothing}"):
    op("RegexFullMatch", {"input": SUBJECTS, "pattern": ONE(p)}, error="INVALID_ARGUMENT", message="Invalid pattern",
       name=repr(p))
    op("RegexReplace", {"input": SUBJECTS, "pattern": ONE(p), "rewrite": ONE("")}, error="INVALID_ARGUMENT",
       message="Invalid pattern", name=repr(p))
op("RegexFullMatch", {"input": SUBJECTS, "pattern": S("a", "b")}, error="INVALID_ARGUMENT", message="Pattern must be scalar")
op("RegexFullMatch", {"input": S("a" * 5000 + "b"), "pattern": ONE("(a*)*(a*)*c")}, name="no backtracking")

EVERY = S(*(chr(c) for c in range(0x20000) if not 0xd800 <= c < 0xe000))
for p in ("L", "Lu", "Ll", "Lt", "M", "N", "Nd", "P", "Pd", "S", "Sc", "Z", "C", "Greek", "Han", "Cyrillic", "Common"):
    op("RegexFullMatch", {"input": EVERY, "pattern": ONE(f"\\p{{{p}}}")}, name=f"every {p}")

for p in ("(?i)[a-z]", "(?i)\\p{Lu}", "(?i)[α-ω]", "(?i)[ǅ]", "(?i)\\p{Cyrillic}", "(?i)[^\\p{Ll}]"):
    op("RegexFullMatch", {"input": EVERY, "pattern": ONE(p)}, name=f"every {p}")

# ---- scripts ----
op("UnicodeScript", {"input": np.array([0, 65, 0x3b1, 0x430, 0x5d0, 0x4e2d, 0x10ffff, 0x110000, -1, 2**31 - 1], np.int32)})
op("UnicodeScript", {"input": np.arange(0x30000, dtype=np.int32).reshape(-1, 16)})
op("UnicodeScript", {"input": np.arange(0xe0000, 0x110010, dtype=np.int32)})
op("UnicodeScript", {"input": np.int32(0x627)})
