"""Einsum: products, sums, diagonals, broadcasting."""
from cases import *

CASES = [("ab,bc->ac", (3, 4), (4, 5)), ("ab,bc->ca", (3, 4), (4, 5)), ("abc,cd->abd", (2, 3, 4), (4, 5)),
         ("bsd,dnh->bsnh", (2, 3, 4), (4, 5, 6)), ("btnh,bsnh->bnts", (2, 3, 4, 5), (2, 6, 4, 5)),
         ("bnts,bsnh->btnh", (2, 3, 4, 5), (2, 5, 3, 6)), ("a,a->", (5,), (5,)), ("a,b->ab", (5,), (3,)), ("a,b->ba", (5,), (3,)),
         ("ab->ba", (3, 4)), ("ab->a", (3, 4)), ("ab->", (3, 4)), ("aa->a", (4, 4)), ("aa->", (4, 4)), ("aab->b", (3, 3, 2)),
         ("a->aa", (3,)), ("ab->aba", (3, 2)), ("...a->a...", (2, 3, 4)), ("...ab->...", (2, 3, 4)),
         ("...ab,...bc->...ac", (2, 3, 4), (2, 4, 5)), ("...ab,bc->...ac", (7, 2, 3, 4), (4, 5)),
         ("...ab,...bc->...ac", (2, 1, 3, 4), (6, 4, 5)), ("a...,a...->...", (3, 2, 4), (3, 4)), ("...,...->...", (2, 1), (3,)),
         ("abc,ad->bd", (3, 4, 5), (3, 2)), ("ab,ab->ab", (3, 4), (3, 4)), ("ab,ab->ba", (3, 4), (3, 4)), ("aab,ac->bc", (3, 3, 2), (3, 4)),
         ("abcd,cbe->aed", (2, 3, 4, 5), (4, 3, 6)), ("ab,cd->", (2, 3), (3, 2)), ("abc,abd->", (2, 3, 4), (2, 3, 5)),
         ("ab,bc->ac", (0, 4), (4, 5)), ("ab,bc->ac", (3, 0), (0, 5)), ("->", ()), ("a,->a", (3,), ())]
for equation, *shapes in CASES:
    op("Einsum", {"inputs": [R(*s) for s in shapes]}, {"equation": equation}, grad=True,
       dtypes=[tf.float32, tf.float64, tf.complex64, tf.bfloat16, tf.int32])
for equation, shapes, message in (("ab,bc->ac", [(2, 3), (4, 5)], r"Expected dimension 3 at axis 0 of the input shaped \[4,5\] but got dimension 4"),
                                  ("ab->a", [(2, 3, 4)], "Expected input 0 to have rank 2 but got: 3"),
                                  ("a...b->b", [(2, 3, 4)], r"no ellipsis \(...\) was found in the output"),
                                  ("aa->a", [(2, 3)], "Expected dimension 2 at axis 1")):
    op("Einsum", {"inputs": [R(*s) for s in shapes]}, {"equation": equation}, error="INVALID_ARGUMENT", message=message)
