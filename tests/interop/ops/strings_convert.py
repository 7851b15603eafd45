"""Strings to values and back; Unicode."""
import gzip
import zlib

from cases import *

S = lambda *words: np.array([w if isinstance(w, bytes) else w.encode() for w in words], object)
ONE = lambda w: np.array(w if isinstance(w, bytes) else w.encode(), object)

for attrs in ({}, {"precision": 3}, {"scientific": True}, {"shortest": True}, {"width": 9}, {"width": 9, "fill": "0"},
              {"width": 8, "fill": "-", "precision": 1}, {"fill": "+"}, {"fill": " "}, {"precision": 0, "fill": "#"}):
    op("AsString", {"input": R(3, 2)}, attrs, dtypes=FLOATS + COMPLEX)
    if not set(attrs) & {"precision", "scientific", "shortest"}:
        op("AsString", {"input": R(5)}, attrs, dtypes=INTS + [tf.bool])
op("AsString", {"input": np.array([np.nan, np.inf, -np.inf, 0, -0., 1e30, 1e-30], np.float32)})
op("AsString", {"input": R(3, dtype=tf.string)})
op("AsString", {"input": R(3)}, {"fill": "x"}, error="INVALID_ARGUMENT", message="Fill argument not supported")
op("AsString", {"input": R(3)}, {"fill": "00"}, error="INVALID_ARGUMENT")
op("AsString", {"input": R(3)}, {"scientific": True, "shortest": True}, error="INVALID_ARGUMENT")
op("AsString", {"input": R(3)}, {"precision": 2}, dtypes=[tf.int32], error="INVALID_ARGUMENT")

graph("StringFormat", lambda: [tf.raw_ops.StringFormat(
    inputs=[feed(R(3)), feed(R(2, 9, dtype=tf.int32)), feed(R(2, dtype=tf.string)), feed(R(dtype=tf.bool))],
    template="a %s b %s, %s%s.", summarize=n) for n in (3, 1, -1)])
graph("StringFormat none", lambda: [tf.raw_ops.StringFormat(inputs=[], template="plain", placeholder="{}")])

BYTES = np.array([bytes(range(i)) for i in range(0, 9)] + [bytes(255 - i for i in range(200))], object)
for pad in (False, True):
    op("EncodeBase64", {"input": BYTES}, {"pad": pad})
    graph(f"DecodeBase64 {pad}", lambda dtype, p=pad: [tf.raw_ops.DecodeBase64(input=tf.raw_ops.EncodeBase64(
        input=feed(BYTES), pad=p))])
for bad in ("a", "ab+/", "a===", "a b c", "abc=d", "=", "===="):
    op("DecodeBase64", {"input": S(bad)}, error="INVALID_ARGUMENT", name=bad)

for dtype in (tf.float16, tf.float32, tf.float64, tf.int32, tf.uint16, tf.uint8, tf.int16, tf.int8, tf.int64, tf.bfloat16,
              tf.complex64, tf.complex128):
    for little in (True, False):
        op("DecodeRaw", {"bytes": np.array([[bytes(range(16)), bytes(range(40, 56))]], object)},
           {"out_type": dtype, "little_endian": little})
        if dtype not in (tf.complex64, tf.complex128, tf.float16):
            op("DecodePaddedRaw", {"input_bytes": S(bytes(range(1, 10)), b"", b"ab"), "fixed_length": np.int32(16)},
               {"out_type": dtype, "little_endian": little})
op("DecodeRaw", {"bytes": np.array([b"\0\1", b"\1\0"], object)}, {"out_type": tf.bool})
op("DecodeRaw", {"bytes": S()}, {"out_type": tf.int32}, name="nothing")
op("DecodeRaw", {"bytes": S(b"", b"")}, {"out_type": tf.int32}, name="empty")
op("DecodeRaw", {"bytes": S("abc")}, {"out_type": tf.int32}, error="INVALID_ARGUMENT",
   message="Input to DecodeRaw has length 3 that is not a multiple of 4, the size of int32")
op("DecodeRaw", {"bytes": S("abcd", "ab")}, {"out_type": tf.uint8}, error="INVALID_ARGUMENT")
op("DecodePaddedRaw", {"input_bytes": S("a"), "fixed_length": np.int32(3)}, {"out_type": tf.int16}, error="INVALID_ARGUMENT")
op("DecodePaddedRaw", {"input_bytes": S("a"), "fixed_length": np.int32(0)}, {"out_type": tf.int16}, error="INVALID_ARGUMENT")

PLAIN = b"hello " * 5000
for kind, pack in (("", bytes), ("ZLIB", zlib.compress), ("GZIP", gzip.compress)):
    op("DecodeCompressed", {"bytes": np.array([pack(PLAIN), pack(b"")], object)}, {"compression_type": kind})
op("DecodeCompressed", {"bytes": S("no")}, {"compression_type": "ZLIB"}, error="DATA_LOSS")
op("DecodeCompressed", {"bytes": S("no")}, {"compression_type": "LZMA"}, error="INVALID_ARGUMENT")

for widths, pad, short in (([2], 0, False), ([1, 3], -1, False), ([4], 1, True), ([3], 0, True), ([], 0, False)):
    op("StringNGrams", {"data": S("a", "b", "c", "d", "e", "f"), "data_splits": np.array([0, 3, 3, 4, 6], np.int64)},
       {"separator": "|", "ngram_widths": widths, "left_pad": "LP", "right_pad": "RP", "pad_width": pad,
        "preserve_short_sequences": short})
op("StringNGrams", {"data": S(), "data_splits": np.array([0, 0], np.int32)},
   {"separator": "|", "ngram_widths": [2], "left_pad": "", "right_pad": "", "pad_width": 0, "preserve_short_sequences": False})
op("StringNGrams", {"data": S("a"), "data_splits": np.array([0, 2], np.int32)},
   {"separator": "|", "ngram_widths": [2], "left_pad": "", "right_pad": "", "pad_width": 0, "preserve_short_sequences": False},
   error="INVALID_ARGUMENT")

# ---- Unicode ----
GOOD = ["", "abc", "äöü", "日本語", "😀x", "\x01a\x1f"]
UTF8 = S(*GOOD)
BAD = S(b"\xff\xfe", b"a\xc3", b"\xe6\x97", b"\xe6\x97z", b"\xed\xa0\x80", b"\xf5\x80", b"ok\x80\x80", b"\xc0\xaf", b"\xf0\x9f\x98")
for errors in ("replace", "ignore"):
    for control in (False, True):
        attrs = {"errors": errors, "replace_control_characters": control, "replacement_char": 63}
        for out in ("UTF-8", "UTF-16-BE", "UTF-32-BE"):
            op("UnicodeTranscode", {"input": UTF8}, {"input_encoding": "UTF-8", "output_encoding": out, **attrs})
            op("UnicodeTranscode", {"input": BAD}, {"input_encoding": "UTF-8", "output_encoding": out, **attrs}, name="bad")
        for encoding in ("utf-16-be", "utf-32-be"):
            name = encoding.upper()
            op("UnicodeTranscode", {"input": np.array([w.encode(encoding) for w in GOOD] + [b"\xd8", b"\xd8\x00\x00a", b"\0"],
                                                      object)}, {"input_encoding": name, "output_encoding": "UTF-8", **attrs})
        for words in (UTF8, BAD):
            op("UnicodeDecode", {"input": words}, {"input_encoding": "UTF-8", "Tsplits": tf.int32, **attrs},
               name="bad" if words is BAD else "")
            op("UnicodeDecodeWithOffsets", {"input": words}, {"input_encoding": "UTF-8", **attrs},
               name="bad" if words is BAD else "")
for encoding, text in (("UTF-16", [b"\xfe\xff\0*", b"\xff\xfe*\0", b"\0*", b"\xff\xfe<\0\xff\xfe>\0", b"\xff\xfe", b"\xff"]),
                       ("UTF-32", [b"\0\0\xfe\xff\0\0\0*", b"\xff\xfe\0\0*\0\0\0", b"\0\0\0*"]),
                       ("UTF-16-LE", [b"\xff\xfe*\0"]), ("UTF-8", [b"\xef\xbb\xbf*"]), ("euc_kr", ["한국".encode("euc_kr")])):
    op("UnicodeTranscode", {"input": S(*text)}, {"input_encoding": encoding, "output_encoding": "UTF-8"}, name="mark")
    op("UnicodeDecodeWithOffsets", {"input": S(*text)}, {"input_encoding": encoding}, name="mark")
op("UnicodeTranscode", {"input": S(b"caf\xe9")}, {"input_encoding": "ISO-8859-1", "output_encoding": "UTF-8"})
op("UnicodeTranscode", {"input": S(b"caf\xe9")}, {"input_encoding": "US-ASCII", "output_encoding": "UTF-8"})
op("UnicodeTranscode", {"input": S(b"\x82\xa0\x80x")}, {"input_encoding": "windows-1252", "output_encoding": "UTF-8"})
op("UnicodeTranscode", {"input": BAD}, {"input_encoding": "UTF-8", "output_encoding": "UTF-8", "errors": "strict"},
   error="INVALID_ARGUMENT", message="Invalid formatting on input string")
op("UnicodeDecode", {"input": BAD}, {"input_encoding": "UTF-8", "errors": "strict"}, error="INVALID_ARGUMENT")
op("UnicodeTranscode", {"input": BAD}, {"input_encoding": "no-such", "output_encoding": "UTF-8"}, error="INVALID_ARGUMENT",
   message="Could not create converter for input encoding: no-such")
for errors in ("replace", "ignore"):
    for out in ("UTF-8", "UTF-16-BE", "UTF-32-BE"):
        op("UnicodeEncode", {"input_values": np.array([97, 228, 0x65e5, 0x1f600, 0x110000, 0xd800, -1, 0xffff, 98], np.int32),
                             "input_splits": np.array([0, 2, 2, 9], np.int64)}, {"errors": errors, "output_encoding": out})
op("UnicodeEncode", {"input_values": np.array([0x110000], np.int32), "input_splits": np.array([0, 1], np.int64)},
   {"errors": "strict", "output_encoding": "UTF-8"}, error="INVALID_ARGUMENT")
op("UnicodeEncode", {"input_values": np.array([97], np.int32), "input_splits": np.array([0, 5], np.int64)},
   {"output_encoding": "UTF-8"}, error="INVALID_ARGUMENT")
