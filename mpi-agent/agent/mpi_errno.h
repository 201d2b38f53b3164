/* MPI's codes become errno here. */
#pragma once

/* 0; or -EIO, logged with what was tried. */
int mpi_errno(int code, const char *what);
