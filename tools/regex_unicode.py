"""Writes src/base/regex_unicode.inc: the general category and the script of every code point, and which are the same
but for their case, as RE2 has them in TensorFlow's regex_full_match.

  tools/python.sh tools/regex_unicode.py > src/base/regex_unicode.inc

Two tables of runs: a word is the first code point of a run in its upper 24 bits and the place of its name in the list
of names in its lower 8; place 0 is none. The third: every `step` th code point of a run has another case `delta`
further on; from that one it goes on, until it comes back.
"""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from words import print_words

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
SCRIPTS = """
Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki Bopomofo
Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Chorasmian Common
Coptic Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs
Elbasan Elymaic Ethiopic Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi Gurmukhi Han Hangul
Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi
Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi Khitan_Small_Script Khmer Khojki
Khudawadi Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean
Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi
Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong
Ogham Ol_Chiki Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian Old_Sogdian Old_South_Arabian
Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi
Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo
Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangsa Tangut Telugu Thaana
Thai Tibetan Tifinagh Tirhuta Toto Ugaritic Vai Vithkuqi Wancho Warang_Citi Yezidi Yi Zanabazar_Square
""".split()

points = [c for c in range(0x110000) if not 0xd800 <= c < 0xe000]
texts = tf.constant([chr(c).encode() for c in points])


def of(names):
    known, found = [], np.zeros(0x110000, np.uint8)
    for name in names:
        try:
            match = tf.strings.regex_full_match(texts, rf"\p{{{name}}}").numpy()
        except tf.errors.InvalidArgumentError:
            continue  # newer than this RE2
        known.append(name)
        found[np.array(points)[match]] = len(known)
    return known, found


def show(table, known, found):
    starts = [0] + [int(i) + 1 for i in np.nonzero(np.diff(found))[0]]
    print(f"static const char *const {table}_names[] = {{")
    print_words(f'"{name}"' for name in known)
    print("};\n")
    print(f"static const uint32_t {table}_runs[] = {{")
    print_words(f"0x{start << 8 | int(found[start]):x}" for start in starts)
    print("};")


def circles():
    """Code points that differ by case alone, each in a circle: what Python proposes, as far as RE2 agrees."""
    leader = {}

    def find(c):
        while leader.get(c, c) != c:
            c = leader[c]
        return c

    for c in points:
        for other in (chr(c).lower(), chr(c).upper(), chr(c).casefold(), chr(c).title()):
            if len(other) == 1 and ord(other) != c:
                leader[max(find(c), find(ord(other)))] = min(find(c), find(ord(other)))
    groups = {}
    for c in points:
        groups.setdefault(find(c), []).append(c)
    for group in groups.values():
        while len(group) > 1:
            match = tf.strings.regex_full_match([chr(c) for c in group], f"(?i)\\x{{{group[0]:x}}}").numpy()
            same = [c for c, yes in zip(group, match) if yes]
            if len(same) > 1:
                yield same
            group = [c for c, yes in zip(group, match) if not yes]


def show_folds():
    next_of = {a: b for circle in circles() for a, b in zip(circle, circle[1:] + circle[:1])}
    runs = []
    for c in sorted(next_of):
        delta = next_of[c] - c
        for run in runs[-2:]:
            step = c - run[1]
            if run[2] == delta and step <= 2 and run[3] in (0, step):
                run[1], run[3] = c, step
                break
        else:
            runs.append([c, c, delta, 0])
    print("static const struct regex_fold folds[] = {")
    print_words(f"{{0x{lo:x}, 0x{hi:x}, {delta}, {max(step, 1)}}}" for lo, hi, delta, step in runs)
    print("};")


print("/* Made by tools/regex_unicode.py. */")
show("category", *of(CATEGORIES))
print()
show("script", *of(SCRIPTS))
print()
show_folds()
