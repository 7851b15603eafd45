"""Pictures: decoding gives the same pixels, encoding what decodes to the same."""
import struct

from cases import *

ONE = lambda w: np.array(w, object)
rng = np.random.default_rng(5)
SMOOTH = lambda h, w, c: np.stack([np.add.outer(np.arange(h) * 7, np.arange(w) * 3) + 40 * i for i in range(c)], -1).astype(np.uint8)


def encoded(name, image, **attrs):
    with tf.Graph().as_default(), tf.Session() as s:
        return s.run(getattr(tf.raw_ops, name)(image=tf.constant(image), **attrs))


def bmp(image, top_down=False):
    h, w, c = image.shape
    rows = image[..., [2, 1, 0] + [3] * (c == 4)] if c > 1 else image
    rows = rows if top_down else rows[::-1]
    pad = -(w * c) % 4
    data = b"".join(r.tobytes() + b"\0" * pad for r in rows)
    return (b"BM" + struct.pack("<IHHI", 54 + len(data), 0, 0, 54) +
            struct.pack("<IiiHHIIiiII", 40, w, -h if top_down else h, 1, 8 * c, 0, len(data), 0, 0, 0, 0) + data)


def gif(frames, interlaced=False):
    """Codes of fixed width, with a clear code before the table grows: no compression, but right."""
    h, w = frames[0][2].shape
    out = b"GIF89a" + struct.pack("<HHBBB", w, h, 0xf7, 0, 0) + bytes(v for i in range(256) for v in (i, 255 - i, i * 7 % 256))
    for left, top, pixels in frames:
        bits, n, data = 0, 0, bytearray()
        codes = [c for i, p in enumerate(pixels.ravel()) for c in (([256] if i % 200 == 0 else []) + [int(p)])] + [257]
        for c in codes:
            bits |= c << n
            n += 9
            while n >= 8:
                data.append(bits & 255)
                bits >>= 8
                n -= 8
        data.append(bits)
        out += b"\x21\xf9\x04\0\0\0\0\0" + b"," + struct.pack("<HHHHB", left, top, pixels.shape[1], pixels.shape[0], 0x40 * interlaced) + b"\x08"
        out += b"".join(bytes([len(data[i:i + 255])]) + bytes(data[i:i + 255]) for i in range(0, len(data), 255)) + b"\0"
    return out + b";"


PICTURES = {f"png{c}": encoded("EncodePng", SMOOTH(9, 7, c)) for c in (1, 2, 3, 4)}
PICTURES["png16"] = encoded("EncodePng", (rng.integers(0, 65536, (5, 6, 3))).astype(np.uint16))
PICTURES["jpeg1"] = encoded("EncodeJpeg", SMOOTH(33, 47, 1))
PICTURES["jpeg3"] = encoded("EncodeJpeg", SMOOTH(33, 47, 3))
PICTURES["progressive"] = encoded("EncodeJpeg", SMOOTH(40, 40, 3), progressive=True, quality=60)
PICTURES["bmp3"] = bmp(SMOOTH(5, 7, 3))
PICTURES["bmp4"] = bmp(SMOOTH(5, 7, 4), True)
PICTURES["bmp1"] = bmp(SMOOTH(5, 7, 1))
INDEXED = lambda h, w, k: (np.add.outer(np.arange(h) * 5, np.arange(w) * 3) + k).astype(np.uint8)
PICTURES["gif"] = gif([(0, 0, INDEXED(11, 13, 0))])
PICTURES["interlaced"] = gif([(0, 0, INDEXED(21, 13, 0))], True)
PICTURES["animated"] = gif([(0, 0, INDEXED(30, 31, 0)), (3, 4, INDEXED(8, 9, 100)), (0, 0, INDEXED(30, 31, 50))])
PICTURES["first frame smaller"] = gif([(2, 3, INDEXED(4, 5, 0)), (0, 0, INDEXED(8, 9, 100))])

for name, data in PICTURES.items():
    kind = "gif" if name in ("gif", "interlaced", "animated", "first frame smaller") else name[:3]
    for channels in (0, 1, 3, 4):
        bad = ((kind == "jpe" or name == "progressive") and channels == 4) or (kind == "gif" and channels in (1, 4)) or (
            kind == "bmp" and channels == 1)
        # TensorFlow does not survive a top-down BMP as anything but uint8.
        for dtype in (tf.uint8, tf.uint16, tf.float32) if name != "bmp4" else (tf.uint8,):
            op("DecodeImage", {"contents": ONE(data)}, {"channels": channels, "dtype": dtype}, name=name, known=False,
               **({"error": "INVALID_ARGUMENT"} if bad else {}))
    for decode in ("DecodePng", "DecodeJpeg", "DecodeGif", "DecodeBmp"):
        single = name not in ("animated", "first frame smaller")
        ok = (decode == "DecodeBmp") == (kind == "bmp") and (decode == "DecodeGif" or single)
        op(decode, {"contents": ONE(data)}, name=name, known=False, **({} if ok else {"error": "INVALID_ARGUMENT"}))
op("DecodeImage", {"contents": ONE(PICTURES["animated"])}, {"expand_animations": False}, name="first frame")
for dtype in (tf.uint8, tf.uint16):
    op("DecodePng", {"contents": ONE(PICTURES["png16"])}, {"dtype": dtype, "channels": 1})
for ratio in (1, 2, 4, 8):
    for dct in ("", "INTEGER_ACCURATE"):
        op("DecodeJpeg", {"contents": ONE(PICTURES["jpeg3"])}, {"ratio": ratio, "dct_method": dct, "fancy_upscaling": ratio == 2})
for window in ((0, 0, 33, 47), (5, 6, 10, 11), (16, 32, 17, 15), (1, 17, 3, 4)):
    op("DecodeAndCropJpeg", {"contents": ONE(PICTURES["jpeg3"]), "crop_window": np.array(window, np.int32)}, name=str(window))
for window in ((0, 0, 34, 47), (-1, 0, 3, 3), (0, 0, 0, 3), (30, 40, 10, 10)):
    op("DecodeAndCropJpeg", {"contents": ONE(PICTURES["jpeg3"]), "crop_window": np.array(window, np.int32)},
       error="INVALID_ARGUMENT", name=str(window))
op("ExtractJpegShape", {"contents": ONE(PICTURES["jpeg3"])})
op("ExtractJpegShape", {"contents": ONE(PICTURES["jpeg1"])}, {"output_type": tf.int64})
op("ExtractJpegShape", {"contents": ONE(b"nothing")}, error="INVALID_ARGUMENT")
for name in ("png3", "jpeg3", "gif", "bmp3"):
    for cut in (0, 3, 20, len(PICTURES[name]) // 2):
        op("DecodeImage", {"contents": ONE(PICTURES[name][:cut])}, error="INVALID_ARGUMENT", name=f"{name} cut at {cut}")
op("DecodeImage", {"contents": ONE(b"nothing that is known")}, error="INVALID_ARGUMENT", message="Unknown image file format")


def back(encode, decode, image, **attrs):
    x = getattr(tf.raw_ops, encode)(image=feed(image), **attrs)
    return [getattr(tf.raw_ops, decode)(contents=x)]


for c in (1, 2, 3, 4):
    graph(f"EncodePng {c}", lambda dtype, c=c: back("EncodePng", "DecodePng", SMOOTH(6, 5, c), compression=6))
for c in (1, 3):
    for attrs in ({}, {"quality": 30}, {"progressive": True}, {"chroma_downsampling": False}, {"optimize_size": True}):
        graph(f"EncodeJpeg {c} {attrs}", lambda dtype, c=c, a=attrs: back("EncodeJpeg", "DecodeJpeg", SMOOTH(33, 40, c), **a))
op("EncodePng", {"image": SMOOTH(3, 4, 3)[None, None]}, name="batch")
op("EncodePng", {"image": np.zeros((3, 4, 5), np.uint8)}, error="INVALID_ARGUMENT")
op("EncodeJpeg", {"image": np.zeros((3, 4, 4), np.uint8)}, error="INVALID_ARGUMENT")
op("EncodeJpeg", {"image": np.zeros((3, 4, 3), np.uint8)}, {"quality": 101}, error="INVALID_ARGUMENT")
op("EncodeJpegVariableQuality", {"images": SMOOTH(3, 4, 3), "quality": np.int32(200)}, error="INVALID_ARGUMENT")
