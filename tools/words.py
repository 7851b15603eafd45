"""Words of a table, for those who write one: each behind a comma, in lines of at most 119 columns."""


def print_words(words):
    line = ""
    for word in words:
        if len(line) + len(word) + 2 > 119:
            print(line)
            line = ""
        line += (" " if line else "") + word + ","
    print(line)
