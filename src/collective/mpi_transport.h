/* MPI as a transport of collectives (transport.h): processes that mpirun has started, a rank each, as their world has
 * them. OpenMPI's library is looked for when it is asked for; nothing is linked with it, and nothing of it is needed to
 * build.
 *
 * All of it is one thread's: whoever waits for a collective calls mpi_transport_progress() until it has ended. */
#ifndef COLLECTIVE_MPI_TRANSPORT_H
#define COLLECTIVE_MPI_TRANSPORT_H

#include "collective/transport.h"

struct mpi_transport;

/* Once in a process, before it has other threads. NOT_FOUND where there is no OpenMPI, FAILED_PRECONDITION where no
 * mpirun has started it: both say so. */
shoal_status mpi_transport_open(struct mpi_transport **out);
int mpi_transport_rank(const struct mpi_transport *m);
int mpi_transport_size(const struct mpi_transport *m);
struct collective_transport *mpi_transport_head(struct mpi_transport *m);
/* Ends what has come and gone; calls done of it. */
void mpi_transport_progress(struct mpi_transport *m);
/* Waits for all other ranks to do so. */
void mpi_transport_close(struct mpi_transport *m);
/* Ends the processes of all ranks, this one too: who is left would wait for ever. */
_Noreturn void mpi_transport_abort(struct mpi_transport *m);

#endif
