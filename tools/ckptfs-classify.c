/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ckptfs-classify: lists the variables or segments of a file and their offsets. Started by other programs
 * (store/classify/classify.h), not by hand: standard input is the file, standard output a pipe. With --beside,
 * descriptor 3 is the directory of the file, and files in it that may describe the file are mapped. All this happens
 * before the first byte is read: by then the process has sandboxed itself.
 *
 * Exit status: 0 the result was written, 1 failed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/command.h"
#include "base/noatime.h"
#include "base/util.h"
#include "store/classify/classify.h"
#include "store/classify/format_criu.h"
#include "store/classify/format_hdf5.h"
#include "store/classify/formats.h"
#include "store/classify/names.h"
#include "store/classify/sandbox.h"
#include "store/classify/typed_format.h"

#define MEMORY GiB(1) /* besides the file */
#define CPU_SECONDS 60
#define COMPANIONS_MAX 4096 /* files beyond this limit are ignored; data that only they describe is plain */
#define COMPANION_MAX MiB(256)

struct request {
	const uint8_t *p;
	uint64_t size;
	char *name; /* NULL: not given */
	char *rules; /* for names of variables; NULL: none */
	struct companion beside[COMPANIONS_MAX];
	size_t nr_beside;
	uint64_t beside_size;
};

static const char *reason_of(int r)
{
	switch (r) {
	case -EBADMSG:
		return "it is damaged, or of another format";
	case -E2BIG:
		return "it has too many variables or pieces";
	case -ENOMEM:
		return "out of memory";
	case -EOPNOTSUPP:
		return "built without HDF5";
	default:
		return "it cannot be read";
	}
}

static int write_answer(const struct typed *t, enum typed_verdict verdict, const char *reason)
{
	_cleanup_(freep) uint8_t *said = NULL;
	size_t len, n = 0;

	if (typed_encode(t, verdict, reason, &said, &len) < 0)
		return EXIT_FAILURE;
	while (n < len) {
		ssize_t written = write(STDOUT_FILENO, said + n, len - n);

		if (written < 0 && errno != EINTR)
			return EXIT_FAILURE;
		n += written > 0 ? (size_t)written : 0;
	}
	return EXIT_SUCCESS;
}

static int classify(const struct request *q)
{
	struct typed t = TYPED_EMPTY(q->size);
	struct names *names;
	char why[200];
	int r, status;

	if (names_parse(q->rules ? q->rules : "", &names, why, sizeof(why)) < 0)
		return EXIT_FAILURE;
	t.names = names;
	r = q->name ? format_criu(q->name, q->size, q->beside, q->nr_beside, &t) : 0;
	if (r == 0)
		r = format_hdf5(q->p, q->size, &t);
	if (r == 0)
		r = format_any(q->p, q->size, &t);
	status = write_answer(&t, r > 0 ? TYPED_KNOWN : r == 0 ? TYPED_UNKNOWN : TYPED_REFUSED, reason_of(r));
	typed_release(&t);
	names_free(names);
	return status;
}

/* NULL for an empty file. */
static const uint8_t *map(int fd, uint64_t *ret_size)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return MAP_FAILED;
	*ret_size = (uint64_t)st.st_size;
	return st.st_size > 0 ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
}

/* Skips files that cannot be opened or mapped: the result is then less detailed. */
static void map_companions(struct request *q)
{
	DIR *dir = fdopendir(CLASSIFY_DIR_FILENO);
	struct dirent *d;

	while (dir && q->nr_beside < COMPANIONS_MAX && (d = readdir(dir))) {
		struct companion *c = &q->beside[q->nr_beside];
		int fd;

		if (!criu_is_companion(d->d_name))
			continue;
		fd = openat_noatime(CLASSIFY_DIR_FILENO, d->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd < 0)
			continue;
		c->p = map(fd, &c->len);
		close(fd);
		if (c->p == MAP_FAILED || c->len == 0 || c->len > COMPANION_MAX)
			continue;
		c->name = strdup(d->d_name);
		if (!c->name)
			break;
		q->beside_size += c->len;
		q->nr_beside++;
	}
	if (dir)
		closedir(dir);
}

#define OF(field) offsetof(struct request, field)

static const struct conf_key options[] = {
	{ "names", CONF_STRING, OF(rules), .value = "RULES",
	  .help = "rules that map names of variables, as in ckptfs-analyze(1)" },
	{ "beside", CONF_STRING, OF(name), .value = "NAME",
	  .help = "the file's name in its directory, which is descriptor 3; other files there may describe it" },
	COMMAND_END,
};

/* Maps what is needed, then restricts this process: no byte was read before. */
static int run(void *request, char *operands[] _unused_, int nr _unused_)
{
	struct request *q = request;

	q->p = map(STDIN_FILENO, &q->size);
	if (q->p == MAP_FAILED) {
		fputs("ckptfs-classify: standard input must be a file; other ckptfs commands start this program\n", stderr);
		return EXIT_FAILURE;
	}
	if (q->name && criu_is_pages(q->name))
		map_companions(q);
	format_hdf5_prepare();
	if (syscall(SYS_close_range, 3u, ~0u, 0) < 0 || sandbox_enter(q->size + q->beside_size + MEMORY, CPU_SECONDS) < 0) {
		perror("ckptfs-classify: cannot restrict itself");
		return EXIT_FAILURE;
	}
	/* Skips exit handlers of libraries: the sandbox may not permit them, and there is nothing to clean up. */
	_exit(q->p ? classify(q) : write_answer(&TYPED_EMPTY(0), TYPED_UNKNOWN, ""));
}

int main(int argc, char *argv[])
{
	static const struct command command = {
		.name = "ckptfs-classify",
		.usage = "ckptfs-classify [--names RULES] [--beside NAME 3<DIRECTORY] <FILE >PIPE\n",
		.about = "List the variables or segments of a file and their offsets, for other ckptfs commands. Not for "
			 "interactive use.",
		.options = options,
		.footer = "Exit status: 0 the result was written, 1 failed.",
		.exit_usage = EXIT_FAILURE,
		.exit_failed = EXIT_FAILURE,
		.operands = "only options and a file as standard input",
		.run = run,
	};
	static struct request q;

	return command_main(&command, &q, argc, argv);
}
