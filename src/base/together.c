/* The scope of a thread; see together.h. */
#include "base/together.h"

__thread struct together_scope together_scope;
