#include "tools/output.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int output_finish(const char *command, int status, int lost)
{
	bool earlier = ferror(stdout); /* then errno is of something else by now */

	if (fflush(stdout) == 0 && !earlier)
		return status;
	fprintf(stderr, "%s: standard output cannot be written%s%s\n", command, earlier ? "" : ": ",
		earlier ? "" : strerror(errno));
	return status == 0 ? lost : status;
}
