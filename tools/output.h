/* The last thing a command does: what it has printed must have arrived, or a script goes on with half of it. */
#pragma once

/* The exit status: `status`, or `lost` if that is 0 and standard output could not be written, which is then told. */
int output_finish(const char *command, int status, int lost);
