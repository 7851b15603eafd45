/* MPI_Allreduce of floats in place, for bench/allreduce.py: a line of bytes and median seconds for each size. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ITERS = 5, BATCH = 200, BATCH_BYTES = 4 << 20 };

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 1; i < argc; i++) {
    long bytes = atol(argv[i]), batch = BATCH_BYTES / bytes;
    batch = batch < 1 ? 1 : batch > BATCH ? BATCH : batch;
    float *data = calloc((size_t)bytes, 1);
    double seconds[ITERS];
    for (int k = -2; k < ITERS; k++) {
      double began = MPI_Wtime();
      for (long n = 0; n < batch; n++)
        MPI_Allreduce(MPI_IN_PLACE, data, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      if (k >= 0) seconds[k] = (MPI_Wtime() - began) / (double)batch;
    }
    qsort(seconds, ITERS, sizeof *seconds, by_value);
    if (!rank) printf("%ld %.9f\n", bytes, seconds[ITERS / 2]);
    free(data);
  }
  MPI_Finalize();
  return 0;
}
