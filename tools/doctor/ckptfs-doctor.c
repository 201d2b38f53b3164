/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ckptfs-doctor: checks this machine, mounts and stores, and says what to do. Changes nothing.
 *
 * Exit status, as monitoring systems expect it: 0 all is well, 1 warnings, 2 critical, 3 usage or no answer.
 */
#include <stdbool.h>
#include <stdio.h>

#include "base/command.h"
#include "tools/doctor/checkup.h"

enum exit_status { EXIT_UNKNOWN = 3 }; /* below: enum health */

struct request {
	bool json, quiet;
};

static const struct conf_key options[] = {
	COMMAND_JSON(struct request, json),
	COMMAND_QUIET(struct request, quiet, "print only what needs something done"),
	COMMAND_END,
};

static const char *check(void *request, int nr _unused_)
{
	const struct request *q = request;

	return q->json && q->quiet ? "--json and --quiet exclude each other" : NULL;
}

static int run(void *request, char *operands[], int nr)
{
	const struct request *q = request;
	struct checkup c = { .has_json = q->json, .quiet = q->quiet };

	checkup_begin(&c);
	checkup_machine(&c);
	for (int i = 0; i < nr; i++)
		checkup_path(&c, operands[i]);
	if (nr == 0)
		checkup_mounts(&c);
	checkup_end(&c);
	return (int)c.worst;
}

int main(int argc, char *argv[])
{
	static const struct command command = {
		.name = "ckptfs-doctor",
		.usage = "ckptfs-doctor [--json | --quiet] [MOUNTPOINT|STORE...]\n",
		.about = "Check what ckptfs needs of this machine, and mounts and stores (none given: all mounts), and say what "
			 "to do. Nothing is changed.",
		.options = options,
		.footer = "Exit status: 0 all is well, 1 warnings, 2 critical, 3 usage.",
		.exit_usage = EXIT_UNKNOWN,
		.exit_failed = EXIT_UNKNOWN,
		.max_operands = COMMAND_OPERANDS_MAX,
		.check = check,
		.run = run,
	};
	struct request q = { 0 };

	return command_main(&command, &q, argc, argv);
}
