/* What a GraphDef becomes, before it becomes it. */
#ifndef GRAPH_IMPORT_PARTS_H
#define GRAPH_IMPORT_PARTS_H

#include "base/wire.h"

/* About how many bytes the small parts of a GraphDef take once they are unpacked (elements of lists in attributes, what
 * functions are made of): a few of its own bytes each, and hundreds here. Nodes are counted by others. */
size_t import_parts_bytes(struct wire graph_def);

#endif
