/* What the files of `shoal word2vec` share.
 *
 *   word2vec.c      train, phrases
 *   word2vec_ask.c  neighbors, analogy */
#ifndef CLI_WORD2VEC_H
#define CLI_WORD2VEC_H

int word2vec_neighbors_main(int argc, char **argv);
int word2vec_analogy_main(int argc, char **argv);

#endif
