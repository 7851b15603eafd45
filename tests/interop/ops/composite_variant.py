"""Values of several tensors as one variant, and back."""
from cases import *

KIND, OTHER = b"\x0a\x02\x08\x03", b"\x0a\x02\x08\x01"  # metadata: of one class of values, and of another


def there(metadata=KIND, back=KIND, types=(tf.float32, tf.int64, tf.string)):
    def build():
        parts = [feed(R(2, 3, dtype=tf.float32)), feed(R(4, dtype=tf.int64)), feed(np.array([b"a", b""], object))]
        encoded = tf.raw_ops.CompositeTensorVariantFromComponents(components=parts, metadata=metadata)
        return list(tf.raw_ops.CompositeTensorVariantToComponents(encoded=encoded, metadata=back, Tcomponents=list(types)))
    return build


BAD = dict(error="INVALID_ARGUMENT")
graph("CompositeTensorVariant there and back", there())
graph("CompositeTensorVariant of another kind", there(back=OTHER), **BAD)
graph("CompositeTensorVariant of other types", there(types=(tf.float32, tf.int32, tf.string)), **BAD)
graph("CompositeTensorVariant of fewer", there(types=(tf.float32, tf.int64)), **BAD)
graph("CompositeTensorVariant without sense", there(metadata=b"\x0a\x7f", back=b"\x0a\x7f"), **BAD)
graph("CompositeTensorVariant of another variant", lambda: list(tf.raw_ops.CompositeTensorVariantToComponents(
    encoded=tf.raw_ops.EmptyTensorList(element_shape=[2], max_num_elements=3, element_dtype=tf.float32), metadata=KIND, Tcomponents=[tf.float32])), **BAD)
