/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/agent/mpi_errno.h"

#include <errno.h>
#include <mpi.h>

#include "base/log.h"

int mpi_errno(int code, const char *what)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int len;

	if (code == MPI_SUCCESS)
		return 0;
	MPI_Error_string(code, text, &len);
	return log_errno(-EIO, "MPI: %s: %s", what, text);
}
