/* A trained model as TensorFlow and TensorBoard read it: a folder with
 *
 *   model.ckpt.*            a checkpoint: word2vec/embeddings [words, width]; word2vec/output of negative sampling,
 *                           word2vec/nodes of the hierarchical softmax, in the same shape; word2vec/words, strings
 *   checkpoint              which checkpoint there is
 *   metadata.tsv            a word a line, in the order of the rows; bytes that are no UTF-8 as \xNN
 *   projector_config.pbtxt  so that TensorBoard's projector shows the first under the words of the last but one
 *
 * Each file appears when it is whole, the one that leads to the others last. */
#ifndef WORD2VEC_PROJECTOR_H
#define WORD2VEC_PROJECTOR_H

#include "word2vec/train.h"

/* Makes the folder if need be. */
shoal_status projector_save(const char *folder, const struct word_vocabulary *v, const struct word_model *m);

#endif
