"""Writes src/base/regex_unicode.inc: the general category and the script of every code point, as RE2 has them in
TensorFlow's regex_full_match.

  tools/python.sh tools/regex_unicode.py > src/base/regex_unicode.inc

Two tables of runs. A word is the first code point of a run in its upper 24 bits and the place of its name in the list
of names in its lower 8; place 0 is none.
"""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

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
    wrap(f'"{name}"' for name in known)
    print("};\n")
    print(f"static const uint32_t {table}_runs[] = {{")
    wrap(f"0x{start << 8 | int(found[start]):x}" for start in starts)
    print("};")


def wrap(words):
    line = ""
    for word in words:
        if len(line) + len(word) + 2 > 119:
            print(line)
            line = ""
        line += (" " if line else "") + word + ","
    print(line)


print("/* Made by tools/regex_unicode.py. */")
show("category", *of(CATEGORIES))
print()
show("script", *of(SCRIPTS))
